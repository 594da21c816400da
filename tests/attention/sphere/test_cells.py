"""Attention on S^2 by cells: closed forms, and the honesty of the error bound against the dense kernel."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention.sphere.sphere_tokens import KINDS, equal, gap, masses, tokens
from metastable import sphere
from metastable.attention import KERNELS, Operands, attend
from metastable.attention.sphere.cells import attend_sphere_cells, cells_cost
from metastable.errors import InvalidInput


def differences(queries, keys, mass, beta, rtol, rows=64):
    """(largest error of mean and log Z on sampled rows against the dense kernel, the bound)."""
    asked = Operands(queries, keys, keys, mass, beta)
    *answer, error = attend_sphere_cells(asked, rtol)
    return gap(asked, answer, rows), error


@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 4000),
    log_beta=st.floats(-2.0, 4.0),
    turn=st.booleans(),
    weighted=st.booleans(),
    rtol=st.sampled_from([1e-3, 1e-6, 1e-9]),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_the_error_is_below_the_bound_and_the_bound_below_rtol(
    kind, n, log_beta, turn, weighted, rtol, seed
) -> None:
    beta = 10.0**log_beta
    x = tokens(kind, n, seed)
    generator = torch.Generator().manual_seed(seed)
    b = torch.randn(3, 3, generator=generator, dtype=torch.float64) if turn else torch.eye(3, dtype=torch.float64)
    queries = x @ b
    mass = masses(n, seed) if weighted else equal(n)
    off, error = differences(queries, x, mass, beta, rtol)
    assert off <= error
    longest = beta * float(queries.norm(dim=1).max())
    assert error <= rtol + 2e-14 * (64.0 + longest) + longest * 1e-15


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [4.0, 200.0, 1e4])
def test_many_tokens_with_proxies_and_expansions(kind, beta) -> None:
    x = tokens(kind, 30_000, 3)
    b = torch.tensor([[1.0, 0.3, 0.0], [-0.5, 0.2, 0.7], [0.1, -0.4, -0.6]], dtype=torch.float64)
    mass = torch.full((len(x),), 1.0 / len(x), dtype=torch.float64)
    off, error = differences(x @ b, x, mass, beta, 1e-7, rows=200)
    assert off <= error <= 1.1e-7


def test_uniform_density_gives_the_bessel_ratio() -> None:
    """On S^2, sum over the uniform measure is sinh(z)/z and its mean coth z - 1/z."""
    nodes, weights = sphere.product_gauss(200)
    queries = torch.tensor([[0.0, 0.0, 1.0], [0.6, 0.0, -0.8]], dtype=torch.float64)
    mean, log_z, error = attend_sphere_cells(Operands(queries, nodes, nodes, weights, 30.0), 1e-9)
    expected = 1.0 / math.tanh(30.0) - 1.0 / 30.0
    assert torch.allclose(mean, expected * queries, atol=error, rtol=0.0)
    assert torch.allclose(
        log_z, torch.full((2,), math.log(math.sinh(30.0) / 30.0), dtype=torch.float64), atol=error
    )


def test_queries_off_any_surface_and_of_any_length() -> None:
    keys = tokens("clustered", 5000, 1)
    generator = torch.Generator().manual_seed(2)
    queries = torch.randn(3000, 3, generator=generator, dtype=torch.float64)
    queries[:50] = 0.0
    queries[50:60] *= 1e3
    mass = torch.full((len(keys),), 1.0 / len(keys), dtype=torch.float64)
    off, error = differences(queries, keys, mass, 20.0, 1e-6, rows=3000)
    assert off <= error


def test_beta_zero_is_the_mean_of_the_keys() -> None:
    x, m = tokens("uniform", 2000, 0), masses(2000, 0)
    mean, log_z, _ = attend_sphere_cells(Operands(x, x, x, m, 0.0), 1e-8)
    assert torch.allclose(mean, (m @ x).expand(2000, 3), atol=1e-12)
    assert float(log_z.abs().max()) < 1e-12


def test_a_rotation_of_everything_rotates_the_means() -> None:
    x, m = tokens("clustered", 3000, 5), masses(3000, 5)
    rotation, _ = torch.linalg.qr(
        torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    )
    mean, log_z, error = attend_sphere_cells(Operands(x, x, x, m, 50.0), 1e-8)
    turned = x @ rotation
    turned = turned / turned.norm(dim=1, keepdim=True)
    mean_turned, log_z_turned, error_turned = attend_sphere_cells(Operands(turned, turned, turned, m, 50.0), 1e-8)
    assert float((mean @ rotation - mean_turned).norm(dim=1).max()) <= error + error_turned
    assert float((log_z - log_z_turned).abs().max()) <= error + error_turned


def test_a_tighter_tolerance_gives_a_smaller_error() -> None:
    x = tokens("clustered", 4000, 7)
    m = torch.full((4000,), 1.0 / 4000, dtype=torch.float64)
    gaps = [differences(x, x, m, 30.0, rtol)[0] for rtol in (1e-2, 1e-5, 1e-8)]
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2] > 0.0


@given(
    kind=st.sampled_from(KINDS),
    n=st.integers(1, 3000),
    log_beta=st.floats(-1.0, 3.0),
    columns=st.integers(1, 8),
    smooth=st.booleans(),
    rtol=st.sampled_from([1e-3, 1e-6, 1e-9]),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=25, deadline=None)
def test_other_values_err_by_less_than_the_bound(kind, n, log_beta, columns, smooth, rtol, seed) -> None:
    x, m = tokens(kind, n, seed), masses(n, seed)
    generator = torch.Generator().manual_seed(seed)
    mix = torch.randn(3, columns, generator=generator, dtype=torch.float64)
    values = 30.0 * (torch.sin(4.0 * x @ mix) if smooth else torch.randn(n, columns, generator=generator).double())
    turn = torch.randn(3, 3, generator=generator, dtype=torch.float64)
    asked = Operands(x @ turn, x, values, m, 10.0**log_beta)
    mean, log_z, error = attend_sphere_cells(asked, rtol)
    assert mean.shape == (n, columns)
    scale = float(values.norm(dim=1).max())
    assert gap(replace(asked, values=values / scale), (mean / scale, log_z), rows=64) <= error


def test_values_that_are_a_matrix_times_the_keys_have_that_matrix_times_their_mean() -> None:
    x, m = tokens("clustered", 6000, 2), masses(6000, 2)
    matrix = torch.tensor([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]], dtype=torch.float64)
    mean, log_z, error = attend_sphere_cells(Operands(x, x, x, m, 40.0), 1e-9)
    other, same, bound = attend_sphere_cells(Operands(x, x, x @ matrix, m, 40.0), 1e-9)
    assert float((mean @ matrix - other).norm(dim=1).max()) <= 4.0 * error + 4.0 * bound
    assert float((log_z - same).abs().max()) <= error + bound
    zero, _, _ = attend_sphere_cells(Operands(x, x, torch.zeros(6000, 1, dtype=torch.float64), m, 40.0), 1e-9)
    assert zero.shape == (6000, 1) and float(zero.abs().max()) == 0.0


def test_bad_input_is_refused() -> None:
    x = tokens("uniform", 10, 0)
    m = torch.full((10,), 0.1, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="unit keys"):
        attend_sphere_cells(Operands(x, 2.0 * x, 2.0 * x, m, 1.0), 1e-6)
    with pytest.raises(InvalidInput, match="d = 3"):
        attend_sphere_cells(Operands(x[:, :2], x[:, :2], x[:, :2], m, 1.0), 1e-6)
    with pytest.raises(InvalidInput, match="rtol"):
        attend_sphere_cells(Operands(x, x, x, m, 1.0), 0.0)
    with pytest.raises(InvalidInput, match="float64"):
        attend_sphere_cells(Operands(x.float(), x.float(), x.float(), m, 1.0), 1e-6)


def test_rounding_is_part_of_the_tolerance() -> None:
    """Where rounding takes much of rtol, less is left to the cells, and no quadratic kernel has to step in."""
    keys = sphere.uniform(20_000, 3, seed=0)
    matrix = torch.tensor([[1.0, 0.3, 0.0], [-0.5, 0.2, 0.7], [0.1, -0.4, -0.6]], dtype=torch.float64)
    mass = torch.full((20_000,), 1 / 20_000, dtype=torch.float64)
    _, _, error = attend_sphere_cells(Operands(keys @ matrix, keys, keys, mass, 300.0), 1.45e-12)
    assert error <= 1.45e-12


def test_cells_are_chosen_above_some_pairs_and_below_some_sharpness() -> None:
    """The forecast is that of all pairs at most, so that cells win where the grid cannot be used."""
    keys = tokens("uniform", 30_000, 0)
    asked = Operands(keys, keys, keys, equal(30_000), 10.0)
    assert cells_cost(asked, 1e-6) == 8000.0 * 30_000
    assert cells_cost(asked, 1e-10) == min(24_000.0 * 30_000, 0.8 * asked.pairs)
    few = Operands(keys[:13_000], keys, keys, equal(30_000), 10.0)
    assert cells_cost(few, 1e-6) == math.inf
    assert cells_cost(Operands(keys, keys, keys, equal(30_000), 3e4), 1e-6) == math.inf


def test_attend_by_name_takes_the_cells() -> None:
    x = tokens("clustered", 500, 0)
    found = attend(x, x, beta=5.0, kernel="sphere", rtol=1e-7)
    assert found.kernel == "sphere" and found.error <= 1e-7
    exact = KERNELS["fused"](Operands(x, x, x, equal(500), 5.0))
    assert float((found.mean - exact.mean).norm(dim=1).max()) <= found.error
