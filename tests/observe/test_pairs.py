import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.measure import Ensemble
from metastable.observe import pair_fraction


def dense(x: np.ndarray, m: np.ndarray, threshold: float) -> float:
    weight = np.outer(m, m) * (1 - np.eye(len(m)))
    return float((weight * (x @ x.T > threshold)).sum() / weight.sum())


@pytest.mark.parametrize("threshold", [0.999, 0.5, -1.5, 1.5])
def test_fractions_are_those_of_the_dense_formula(threshold: float) -> None:
    g = torch.Generator().manual_seed(0)
    many = Ensemble(torch.randn(5, 9, 3, generator=g), torch.rand(5, 9, generator=g))
    found = pair_fraction(many, threshold)
    for s, rho in enumerate(many):
        expected = dense(*rho.numpy(), threshold)
        assert float(found[s]) == pytest.approx(expected, abs=1e-14)
        assert pair_fraction(rho, threshold) == pytest.approx(expected, abs=1e-14)


def test_one_cluster_is_one_and_a_token_is_no_pair_with_itself() -> None:
    assert pair_fraction([[1.0, 0.0]] * 4) == 1.0
    assert pair_fraction(ms.sphere.equispaced(8)) == 0.0
    for alone in ([[1.0, 0.0]], ms.Measure([[1.0, 0.0], [0.0, 1.0]], mass=[1, 0])):
        with pytest.raises(InvalidInput, match="two tokens"):
            pair_fraction(alone)
