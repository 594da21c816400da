"""Sobol points on spheres: unit, deterministic, evenly spread, and refused beyond their dimension."""

import pytest
import torch

from metastable.errors import InvalidInput
from metastable.meanfield.sobol import sobol


def test_points_are_even():
    points = sobol(4096, 5)
    assert torch.allclose(points.norm(dim=1), torch.ones(4096, dtype=torch.float64))
    assert float(points.mean(dim=0).abs().max()) < 2e-3
    assert torch.allclose(points.T @ points / 4096, torch.eye(5, dtype=torch.float64) / 5, atol=3e-3)
    assert torch.equal(points, sobol(4096, 5))


def test_too_many_dimensions():
    with pytest.raises(InvalidInput, match="Sobol points need d <="):
        sobol(4, 10**6)
