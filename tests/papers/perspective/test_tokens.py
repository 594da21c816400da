import pytest
import torch

from metastable import sphere
from metastable.papers.perspective.tokens import attention, gaps, overlaps
from metastable.papers.running import equiangular


def test_overlaps_of_all_pairs():
    x = equiangular(5, 0.3)
    assert overlaps(x) == pytest.approx(torch.full((10,), 0.3))
    assert gaps(x) == pytest.approx(torch.full((10,), 0.7))
    assert overlaps(torch.stack([x, x])).shape == (2, 10)


def test_negative_beta_turns_the_scores_around():
    x, mass = sphere.uniform(4, 3, seed=1), torch.full((4,), 0.25, dtype=torch.float64)
    scores = torch.softmax(-2.0 * x @ x.T, dim=1)
    expected = sphere.project_tangent(x, scores @ x)
    assert attention(3, -2.0).velocity(0.0, x, mass) == pytest.approx(expected)
