"""The plan of a grid on S^2: the surface of the queries, the sampled partitions, and the sizes they ask for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention.sphere.sphere_tokens import equal, tokens
from metastable.attention import KERNELS, Operands
from metastable.attention.sphere.plan import plan, planned, sample, surface

MATRIX = torch.tensor([[1.0, 0.2, 0.0], [-0.3, 0.8, 0.1], [0.1, -0.2, 0.7]], dtype=torch.float64)


def asked(queries, keys, beta=20.0):
    return Operands(queries, keys, keys, equal(len(keys)), beta)


def test_surfaces_of_queries() -> None:
    x, y = tokens("uniform", 300, 0), tokens("uniform", 200, 1)
    own = surface(asked(x, x))
    assert own.points is None and own.ellipsoid is None and own.longest == own.shortest == 20.0 and own.miss == 0.0
    other = surface(asked(0.7 * y, x))
    assert other.longest == pytest.approx(14.0) and other.ellipsoid is None and other.miss < 1e-15
    np.testing.assert_allclose(other.points, 0.7 * y.numpy(), atol=1e-15)
    mapped = surface(asked(x @ MATRIX, x))
    form = (mapped.ellipsoid.frame.T * mapped.ellipsoid.axes**2) @ mapped.ellipsoid.frame
    np.testing.assert_allclose(form, 400.0 * (MATRIX.T @ MATRIX).numpy(), atol=1e-11)
    assert mapped.miss < 1e-14
    sizes = torch.linalg.svdvals(MATRIX)
    assert mapped.longest == pytest.approx(20.0 * float(sizes[0])) and mapped.shortest == pytest.approx(
        20.0 * float(sizes[2])
    )
    lengths = torch.linspace(0.5, 1.5, 300, dtype=torch.float64)[:, None]
    assert surface(asked(lengths * x, x)) is None
    nowhere = surface(asked(lengths * x, x, beta=0.0))
    assert nowhere.longest == 0.0 and nowhere.points.shape == (300, 3)


def test_a_matrix_that_is_known_need_not_be_found() -> None:
    x = tokens("uniform", 300, 0)
    found = surface(asked(x @ MATRIX, x))
    told = surface(Operands.known(x @ MATRIX, x, equal(300), 20.0, MATRIX))
    np.testing.assert_allclose(told.ellipsoid.axes, found.ellipsoid.axes, rtol=1e-13)
    assert told.miss < 1e-14
    wrong = surface(Operands.known(x @ MATRIX, x, equal(300), 20.0, 1.01 * MATRIX))
    assert wrong is None


@pytest.mark.parametrize("matrix", [MATRIX, 2.0 * torch.eye(3, dtype=torch.float64)])
def test_tokens_that_are_no_numbers_have_no_place(matrix) -> None:
    x = tokens("uniform", 300, 0)
    here = Operands.known(x @ matrix, x, equal(300), 20.0, matrix)
    y = x.clone()
    y[7, 1] = np.nan
    assert surface(here) is not None
    assert surface(here.moved(y @ matrix, y, equal(300))) is None
    assert surface(Operands.checked_before(y @ matrix, y, y, equal(300), 20.0)) is None


def test_tokens_that_moved_on_their_ellipsoid_keep_the_plan() -> None:
    x, y = tokens("uniform", 400, 0), tokens("uniform", 400, 1)
    here = Operands.known(x @ MATRIX, x, equal(400), 20.0, MATRIX)
    assert planned(here, 1e-8) is here
    there = here.moved(y @ MATRIX, y, equal(400))
    assert planned(there, 1e-8) is here
    turn = torch.eye(3, dtype=torch.float64).roll(1, 0)
    here = Operands.known(x @ turn, x, equal(400), 20.0, turn)
    there = here.moved(y @ turn, y, equal(400))
    assert planned(there, 1e-8) is there


def test_sampled_partitions_are_those_of_the_rows() -> None:
    x = tokens("uniform", 100, 3)
    few = asked(x, x, beta=5.0)
    seen = sample(few)
    log_z = KERNELS["dense"](few).log_partition.numpy()
    np.testing.assert_allclose(seen.lengths, 5.0, rtol=1e-14)
    step = max(100 // 48, 1)
    np.testing.assert_allclose(seen.depths[: seen.random], 5.0 - log_z[::step][: seen.random], rtol=1e-12)


def test_a_tighter_tolerance_and_a_sharper_softmax_need_more_nodes() -> None:
    x = tokens("uniform", 4000, 0)
    loose, tight = plan(asked(x, x), 1e-4), plan(asked(x, x), 1e-9)
    sharp = plan(asked(x, x, beta=200.0), 1e-4)
    assert loose.coarse_keys < tight.coarse_keys and loose.coarse_keys < sharp.coarse_keys
    assert loose.lost == 0.0 and loose.error < 1e-4 and loose.nanoseconds < sharp.nanoseconds
    assert plan(asked(x, x, beta=1e7), 1e-9) is None


def test_queries_that_are_nearly_flat_have_no_plan() -> None:
    x = tokens("uniform", 500, 0)
    flat = x @ torch.diag(torch.tensor([1.0, 1.0, 1e-4], dtype=torch.float64))
    assert plan(asked(flat, x), 1e-6) is None
    lengths = torch.linspace(0.5, 1.5, 500, dtype=torch.float64)[:, None]
    assert plan(asked(lengths * x, x), 1e-6) is None


def test_axes_that_differ_cost_lengths_between_them() -> None:
    """One length on every ring of a spheroid, more of them where the axes across the poles differ more."""
    x = tokens("uniform", 4000, 0)
    costs = []
    for across in (1.0, 0.9, 0.4):
        B = torch.diag(torch.tensor([1.0, across, 0.15], dtype=torch.float64))
        costs.append(plan(asked(x @ B, x, beta=60.0), 1e-8).nanoseconds)
    assert costs[0] < 0.5 * costs[1] and costs[1] < costs[2]


def test_softer_lengths_are_taken_only_where_rounding_leaves_room() -> None:
    x = tokens("uniform", 4000, 0)
    B = torch.diag(torch.tensor([1.0, 0.25, 0.2], dtype=torch.float64))
    loose, tight = (plan(asked(x @ B, x, beta=4.0), rtol) for rtol in (1e-4, 1e-11))
    assert loose.soft > tight.soft and tight.lost == 0.0
