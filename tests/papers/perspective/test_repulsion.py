import pytest
import torch

from metastable.papers.perspective.repulsion import changes, slowest
from metastable.theory.equiangular import simplex_rates
from small_claims import small_verdict


def test_changes_of_overlaps_are_told_apart():
    """Moving one corner of a triangle along its circle changes overlaps by u_i + u_j only."""
    angles = torch.tensor([0.0, 2 * torch.pi / 3 + 1e-5, 4 * torch.pi / 3], dtype=torch.float64)
    sums, zero = changes(torch.stack([torch.cos(angles), torch.sin(angles)], dim=1))
    assert sums > 1e-6 and zero < 1e-12


def test_the_slowest_rate_is_one_that_the_tokens_have():
    assert slowest(3, 2, 5.0, True) == simplex_rates(3, 5.0)[1]
    assert slowest(4, 3, 1.0, True) == simplex_rates(4, 1.0)[2]
    assert slowest(2, 5, 1.0, True) == pytest.approx(min(simplex_rates(2, 1.0)[:2]))


def test_energy_falls_to_the_simplex():
    for row in small_verdict("repulsion-simplex").table:
        assert row["last energy"] < row["first energy"]
    assert small_verdict("simplex-rates").holds and small_verdict("repulsion-reverses-time").holds
