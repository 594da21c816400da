import pytest
import torch

import metastable as ms
from metastable.flows import HeadDescent
from metastable.observe import head_dissipation
from metastable.papers.scheduled_heads.protocol import oscillating, published_dissipation, resting, tokens


def test_tokens_stand_around_the_published_directions():
    octahedron = tokens(200, 3, seed=42).points
    base = torch.cat([torch.eye(3), -torch.eye(3)]).double()
    nearest = octahedron @ base.T
    assert nearest.argmax(1).tolist() == [i % 6 for i in range(200)] and float(nearest.amax(1).min()) > 0.97
    circle = tokens(100, 2, seed=42).points
    assert ms.observe.cluster_count(circle, angle=0.3) == 5
    assert torch.equal(tokens(10, 3, 1).points, tokens(10, 3, 1).points)


def test_the_published_dissipation_is_right_for_one_head_only():
    for make in (resting, oscillating):
        for heads in (1, 5):
            flow, rho = HeadDescent(make(1.0, 4, heads, 3)), tokens(12, 3, 1)
            right, published = head_dissipation(rho, flow, 0.3), published_dissipation(rho, flow, 0.3)
            assert (right == pytest.approx(published, rel=1e-12)) is (heads == 1)
