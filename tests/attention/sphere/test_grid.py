"""Attention on S^2 by a Fourier grid: closed forms, and the honesty of the error bound of every row."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention.sphere.sphere_tokens import KINDS, equal, gap, masses, tokens
from metastable import sphere
from metastable.attention import Operands, attend
from metastable.attention.sphere import grid
from metastable.attention.sphere.grid import attend_sphere_grid, grid_cost
from metastable.attention.sphere.plan import planned, surface
from metastable.errors import InvalidInput

MILD = torch.tensor([[1.0, 0.2, 0.0], [-0.3, 0.8, 0.1], [0.1, -0.2, 0.7]], dtype=torch.float64)


@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 3000),
    log_beta=st.floats(-2.0, 3.0),
    queries_are=st.sampled_from(["keys", "opposite", "turned", "others", "mapped"]),
    weighted=st.booleans(),
    rtol=st.sampled_from([1e-3, 1e-6, 1e-9, 1e-11]),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=40, deadline=None)
def test_the_error_is_below_the_bound_and_the_bound_below_rtol(
    kind, n, log_beta, queries_are, weighted, rtol, seed
) -> None:
    beta = 10.0**log_beta
    if queries_are == "mapped":
        beta = min(beta, 30.0)
    x = tokens(kind, n, seed)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))
    queries = {
        "keys": x,
        "opposite": -x,
        "turned": 0.7 * x @ turn,
        "others": 1.3 * tokens("uniform", 500, seed + 1),
        "mapped": x @ MILD,
    }[queries_are]
    mass = masses(n, seed) if weighted else equal(n)
    asked = Operands(queries, x, x, mass, beta)
    if surface(asked) is None:
        assert queries_are == "mapped"  # keys in a plane do not tell the matrix
        with pytest.raises(InvalidInput, match="a matrix times the keys"):
            attend_sphere_grid(asked, rtol)
        return
    answer = attend_sphere_grid(asked, rtol)
    assert gap(asked, answer) <= answer[2]
    longest = beta * float(queries.norm(dim=1).max())
    assert answer[2] <= rtol + 2e-14 * (64.0 + longest)


@pytest.mark.parametrize("rtol", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize(
    ("beta", "mapped"),
    [(0.0, False), (3.0, False), (60.0, False), (400.0, False), (0.0, True), (3.0, True), (60.0, True)],
)
def test_uniform_tokens_never_need_the_cells(beta, rtol, mapped, monkeypatch) -> None:
    def refuse(*_):
        raise AssertionError("rows left to the cells")

    monkeypatch.setattr(grid, "attend_sphere_cells", refuse)
    monkeypatch.setattr(grid, "_FEW_ROWS", 0)
    x = tokens("uniform", 20_000, 5)
    queries = x @ MILD if mapped else x
    asked = Operands(queries, x, x, equal(len(x)), beta)
    answer = attend_sphere_grid(asked, rtol)
    assert gap(asked, answer) <= answer[2] <= rtol


def test_queries_that_look_away_from_all_keys_go_to_the_cells(monkeypatch) -> None:
    """One cluster, half of the queries opposite to it: e^{|z|}/Z is e^{2 beta} there, and no grid can hold that."""
    seen = []
    cells = grid.attend_sphere_cells

    def counted(operands, rtol):
        seen.append(len(operands.queries))
        return cells(operands, rtol)

    monkeypatch.setattr(grid, "attend_sphere_cells", counted)
    x = sphere.normalize(torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64) + 0.1 * tokens("uniform", 4000, 1))
    queries = torch.where(torch.arange(4000)[:, None] % 2 == 0, x, -x)
    asked = Operands(queries, x, x, equal(4000), 80.0)
    answer = attend_sphere_grid(asked, 1e-8)
    assert seen == [2000]
    assert gap(asked, answer, rows=4000) <= answer[2] <= 1e-8
    assert grid_cost(asked, 1e-8) == math.inf


def test_uniform_density_gives_the_bessel_ratio() -> None:
    """On S^2, sum over the uniform measure is sinh(z)/z and its mean coth z - 1/z."""
    nodes, weights = sphere.product_gauss(200)
    queries = torch.tensor([[0.0, 0.0, 1.0], [0.6, 0.0, -0.8]], dtype=torch.float64)
    mean, log_z, error = attend_sphere_grid(Operands(queries, nodes, nodes, weights, 30.0), 1e-10)
    assert error <= 1e-10
    assert torch.allclose(mean, (1.0 / math.tanh(30.0) - 1.0 / 30.0) * queries, atol=error, rtol=0.0)
    expected = torch.full((2,), math.log(math.sinh(30.0) / 30.0), dtype=torch.float64)
    assert torch.allclose(log_z, expected, atol=error, rtol=0.0)


def test_tokens_on_poles_and_on_the_seam() -> None:
    x = torch.tensor(
        [[0, 0, 1], [0, 0, -1], [1, 0, 0], [-1, 0, 0], [-1, -0.0, 0], [0, 1, 0], [-1, -1e-300, 0], [1e-9, 0, -1]],
        dtype=torch.float64,
    )
    asked = Operands(x, x, x, equal(len(x)), 5.0)
    answer = attend_sphere_grid(asked, 1e-10)
    assert gap(asked, answer) <= answer[2] <= 1e-10


def test_a_rotation_of_everything_rotates_the_means() -> None:
    x, m = tokens("clustered", 3000, 5), masses(3000, 5)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    mean, log_z, error = attend_sphere_grid(Operands(x, x, x, m, 50.0), 1e-9)
    turned = sphere.normalize(x @ turn)
    mean_turned, log_z_turned, error_turned = attend_sphere_grid(Operands(turned, turned, turned, m, 50.0), 1e-9)
    assert float((mean @ turn - mean_turned).norm(dim=1).max()) <= error + error_turned
    assert float((log_z - log_z_turned).abs().max()) <= error + error_turned


@pytest.mark.parametrize(
    ("columns", "mapped", "rtol"), [(1, True, 1e-5), (3, False, 1e-9), (3, True, 1e-9), (5, False, 1e-5)]
)
def test_other_values_err_by_less_than_the_bound(columns, mapped, rtol) -> None:
    x, m = tokens("uniform", 5000, 8), masses(5000, 3)
    generator = torch.Generator().manual_seed(columns)
    values = 1e3 * torch.randn(5000, columns, generator=generator, dtype=torch.float64)
    asked = Operands(x @ MILD if mapped else x, x, values, m, 30.0)
    mean, log_z, error = attend_sphere_grid(asked, rtol)
    scale = float(values.norm(dim=1).max())
    assert mean.shape == (5000, columns)
    assert gap(replace(asked, values=values / scale), (mean / scale, log_z)) <= error <= rtol


def test_rows_that_the_grid_cannot_hold_have_other_values_from_the_cells() -> None:
    x = sphere.normalize(torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64) + 0.1 * tokens("uniform", 4000, 1))
    queries = torch.where(torch.arange(4000)[:, None] % 2 == 0, x, -x)
    asked = Operands(queries, x, x[:, :2].contiguous(), equal(4000), 80.0)
    answer = attend_sphere_grid(asked, 1e-8)
    assert gap(asked, answer, rows=400) <= answer[2] <= 1e-8


def test_auto_takes_the_grid_for_other_values() -> None:
    x = tokens("uniform", 6000, 2)
    values = torch.sin(5.0 * x[:, :1])
    fast = attend(x, x, values=values, beta=40.0, rtol=1e-9)
    assert fast.kernel == "sphere_grid" and fast.error <= 1e-9
    exact = attend(x[:40], x, values=values, beta=40.0)
    assert float((fast.mean[:40] - exact.mean).abs().max()) <= fast.error


@pytest.mark.parametrize("axes", [(1.0, 0.3, 0.02), (1.0, 0.9, -0.05), (1.0, 0.04, 0.04)])
def test_queries_on_a_long_ellipsoid_never_need_the_cells(axes, monkeypatch) -> None:
    """Ill-conditioned B: all rows within the bound, the shortest queries and those with the fewest keys, too."""

    def refuse(*_):
        raise AssertionError("rows left to the cells")

    monkeypatch.setattr(grid, "attend_sphere_cells", refuse)
    x = tokens("uniform", 3000, 6)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64))
    asked = Operands(x @ turn * torch.tensor(axes, dtype=torch.float64), x, x, equal(3000), 60.0)
    answer = attend_sphere_grid(asked, 1e-8)
    lengths = asked.queries.norm(dim=1)
    worst = torch.cat((lengths.argsort()[:20], (answer[1] - 60.0 * lengths).argsort()[:20]))
    some = asked.of_queries(worst)
    assert gap(some, (answer[0][worst], answer[1][worst])) <= answer[2] <= 1e-8
    assert gap(asked, answer) <= answer[2]


def test_auto_takes_the_grid_for_uniform_tokens_and_says_so() -> None:
    x = tokens("uniform", 30000, 2)
    fast = attend(x, x, beta=40.0, rtol=1e-9)
    assert fast.kernel == "sphere_grid" and fast.error is not None and fast.error <= 1e-9
    exact = attend(x[:40], x, beta=40.0)
    assert float((fast.mean[:40] - exact.mean).norm(dim=1).max()) <= fast.error


def test_queries_off_any_surface_and_bad_input_are_refused() -> None:
    x = tokens("uniform", 50, 0)
    lengths = torch.linspace(0.5, 1.5, 50, dtype=torch.float64)[:, None]
    with pytest.raises(InvalidInput, match="a matrix times the keys"):
        attend_sphere_grid(Operands(lengths * x, x, x, equal(50), 1.0), 1e-6)
    assert grid_cost(Operands(lengths * x, x, x, equal(50), 1.0), 1e-6) == math.inf
    with pytest.raises(InvalidInput, match="rtol"):
        attend_sphere_grid(Operands(x, x, x, equal(50), 1.0), 0.0)
    empty = attend_sphere_grid(Operands(x[:0], x, x, equal(50), 1.0), 1e-6)
    assert empty[0].shape == (0, 3) and empty[2] == 0.0


def test_few_pairs_are_not_worth_a_plan(monkeypatch):
    """The search takes as long as all pairs of some thousand tokens, and a run would make it at every stage."""
    asked = []
    monkeypatch.setattr(grid, "plan", lambda *given: asked.append(given))
    x = tokens("uniform", 2000, 0)
    assert grid_cost(Operands(x, x, x, equal(2000), 1.0), 1e-8) == math.inf and asked == []


@pytest.mark.parametrize("kind", ["uniform", "clusters"])
def test_the_bound_holds_where_the_plan_is_that_of_other_tokens(kind) -> None:
    """From uniform tokens to others, which no step of a run would do: rows without a bound come from elsewhere."""
    x, y, mass = tokens("uniform", 2000, 0), tokens(kind, 2000, 1), masses(2000, 2)
    here = Operands.known(x @ (30.0 * MILD), x, mass, 1.0, 30.0 * MILD)
    there = here.moved(y @ (30.0 * MILD), y, mass)
    answer = attend_sphere_grid(there, 1e-8)
    assert planned(there, 1e-8) is here
    assert gap(there, answer) <= answer[2] <= 1e-8 + 1e-11
