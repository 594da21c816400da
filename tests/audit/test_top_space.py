from __future__ import annotations

import math

import pytest
import torch

from metastable.audit.low_rank import LowRank
from metastable.audit.top_space import TopSpace, angle_between, energy_in, top_dimension
from metastable.spectral import dominant


def test_top_space_keeps_pairs_together():
    block = torch.tensor([[1.0, -2.0], [2.0, 1.0]], dtype=torch.float64)
    matrix = torch.block_diag(torch.tensor([[3.0]], dtype=torch.float64), block, torch.tensor([[0.5]]).double())
    found = TopSpace.of(matrix, k=2)
    assert found.top == pytest.approx(3.0) and not found.is_complex and found.gap == pytest.approx(2.0)
    assert found.basis.shape == (4, 1)  # the pair 1 +- 2i does not fit into two dimensions behind 3
    assert TopSpace.of(matrix, k=3).basis.shape == (4, 3)
    turning = TopSpace.of(torch.block_diag(2 * block, torch.tensor([[1.0]]).double()), k=2)
    assert turning.is_complex and turning.gap == pytest.approx(1.0) and turning.basis.shape == (3, 2)


def test_top_space_is_invariant_and_orthonormal():
    """A E = E (E^T A E): the span of eigenvectors is mapped into itself, however far from normal the matrix is."""
    matrix = torch.randn(64, 64, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    found = TopSpace.of(matrix, k=7)
    basis = found.basis
    assert basis.shape in ((64, 6), (64, 7))
    torch.testing.assert_close(basis.T @ basis, torch.eye(basis.shape[1], dtype=torch.float64))
    leak = matrix @ basis - basis @ (basis.T @ matrix @ basis)
    assert float(leak.norm()) < 1e-10 * float(matrix.norm())
    reals = found.eigenvalues.real
    assert bool((reals[:-1] >= reals[1:]).all())


def test_dimension_by_size():
    assert [top_dimension(d) for d in (24, 128, 320, 384, 1024)] == [2, 4, 10, 10, 10]


@pytest.mark.parametrize("distance", [1e-9, 1e-7, 1e-3])
def test_nearly_equal_eigenvalues_are_one_group_as_in_theory(distance):
    """The audit's gap and its word for a rotation are those of `spectral`, also just below its tolerance."""
    for matrix in (
        torch.diag(torch.tensor([2.0, 2.0 - distance, 0.5], dtype=torch.float64)),
        torch.block_diag(
            torch.tensor([[2.0, -distance], [distance, 2.0]], dtype=torch.float64), torch.tensor([[0.5]]).double()
        ),
    ):
        found, decided = TopSpace.of(matrix, k=2), dominant(matrix)
        assert found.gap == pytest.approx(decided.gap, abs=1e-12)
        assert found.is_complex == (decided.kind == "rotation")
        whole = LowRank(torch.eye(3, dtype=torch.float64)[None], matrix[None])
        assert whole.top_space(0).shape[1] == decided.dimension


def test_energy_and_angle_in_closed_form():
    plane = torch.eye(3, dtype=torch.float64)[:, :2]
    points = torch.tensor([[0.6, 0.0, 0.8], [1.0, 0.0, 0.0]], dtype=torch.float64)
    assert float(energy_in(plane, points)) == pytest.approx((0.36 + 1) / 2)
    frames = torch.stack((points, points.flip(1)))
    assert energy_in(plane, frames).tolist() == pytest.approx([(0.36 + 1) / 2, 0.64 / 2])
    tilted = torch.tensor([[0.0], [0.5], [math.sqrt(0.75)]], dtype=torch.float64)
    assert angle_between(plane, tilted) == pytest.approx(60.0)
