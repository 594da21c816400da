"""Attention on S^2 by a Fourier grid: closed forms, its window, and the honesty of the error bound of every row."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention.test_sphere_cells import KINDS, masses, tokens
from metastable import sphere
from metastable.attention import attend, sphere_grid
from metastable.attention.direct.dense import attend_dense
from metastable.attention.sphere.grid import attend_sphere_grid, grid_cost
from metastable.attention.sphere.nodes import attend_nodes, attend_rings
from metastable.attention.sphere.plan import surface
from metastable.attention.sphere.window import WINDOWS, ellipsoid, lebesgue, von_mises, window
from metastable.errors import InvalidInput

MILD = torch.tensor([[1.0, 0.2, 0.0], [-0.3, 0.8, 0.1], [0.1, -0.2, 0.7]], dtype=torch.float64)


def equal(n: int) -> torch.Tensor:
    return torch.full((n,), 1.0 / n, dtype=torch.float64)


def gap(queries, keys, mass, beta, answer, rows=200) -> float:
    """Largest error of mean and log Z on sampled rows against the dense kernel."""
    sample = torch.arange(0, len(queries), max(len(queries) // rows, 1))
    mean, log_z = attend_dense(queries[sample], keys, keys, mass, beta)
    return max(
        float((answer[0][sample] - mean).norm(dim=1).max()), float((answer[1][sample] - log_z).abs().max())
    )  # fmt: skip


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
    if surface(queries.numpy(), x.numpy(), beta) is None:
        assert queries_are == "mapped"  # keys in a plane do not tell the matrix
        return
    answer = attend_sphere_grid(queries, x, x, mass, beta, rtol)
    assert gap(queries, x, mass, beta, answer) <= answer[2]
    longest = beta * float(queries.norm(dim=1).max())
    assert answer[2] <= rtol + 2e-14 * (64.0 + longest)


@pytest.mark.parametrize("beta", [0.0, 3.0, 60.0, 400.0])
@pytest.mark.parametrize("rtol", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("mapped", [False, True])
def test_uniform_tokens_never_need_the_cells(beta, rtol, mapped, monkeypatch) -> None:
    if mapped and beta > 100.0:
        return

    def refuse(*_):
        raise AssertionError("rows left to the cells")

    monkeypatch.setattr(sphere_grid, "attend_sphere_cells", refuse)
    monkeypatch.setattr(sphere_grid, "_FEW", 0)
    x = tokens("uniform", 20_000, 5)
    queries = x @ MILD if mapped else x
    answer = attend_sphere_grid(queries, x, x, equal(len(x)), beta, rtol)
    assert gap(queries, x, equal(len(x)), beta, answer) <= answer[2] <= rtol


def test_queries_that_look_away_from_all_keys_go_to_the_cells(monkeypatch) -> None:
    """One cluster, half of the queries opposite to it: e^{|z|}/Z is e^{2 beta} there, and no grid can hold that."""
    seen = []
    cells = sphere_grid.attend_sphere_cells

    def counted(queries, *rest):
        seen.append(len(queries))
        return cells(queries, *rest)

    monkeypatch.setattr(sphere_grid, "attend_sphere_cells", counted)
    x = sphere.normalize(torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64) + 0.1 * tokens("uniform", 4000, 1))
    queries = torch.where(torch.arange(4000)[:, None] % 2 == 0, x, -x)
    answer = attend_sphere_grid(queries, x, x, equal(4000), 80.0, 1e-8)
    assert seen == [2000]
    assert gap(queries, x, equal(4000), 80.0, answer, rows=4000) <= answer[2] <= 1e-8
    assert grid_cost(queries, x, equal(4000), 80.0, 1e-8) == math.inf


def test_uniform_density_gives_the_bessel_ratio() -> None:
    """On S^2, sum over the uniform measure is sinh(z)/z and its mean coth z - 1/z."""
    nodes, weights = sphere.product_gauss(200)
    queries = torch.tensor([[0.0, 0.0, 1.0], [0.6, 0.0, -0.8]], dtype=torch.float64)
    mean, log_z, error = attend_sphere_grid(queries, nodes, nodes, weights, 30.0, 1e-10)
    assert error <= 1e-10
    assert torch.allclose(mean, (1.0 / math.tanh(30.0) - 1.0 / 30.0) * queries, atol=error, rtol=0.0)
    expected = torch.full((2,), math.log(math.sinh(30.0) / 30.0), dtype=torch.float64)
    assert torch.allclose(log_z, expected, atol=error, rtol=0.0)


def test_tokens_on_poles_and_on_the_seam() -> None:
    x = torch.tensor(
        [[0, 0, 1], [0, 0, -1], [1, 0, 0], [-1, 0, 0], [-1, -0.0, 0], [0, 1, 0], [-1, -1e-300, 0], [1e-9, 0, -1]],
        dtype=torch.float64,
    )
    answer = attend_sphere_grid(x, x, x, equal(len(x)), 5.0, 1e-10)
    assert gap(x, x, equal(len(x)), 5.0, answer) <= answer[2] <= 1e-10


def test_a_rotation_of_everything_rotates_the_means() -> None:
    x, m = tokens("clustered", 3000, 5), masses(3000, 5)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    mean, log_z, error = attend_sphere_grid(x, x, x, m, 50.0, 1e-9)
    turned = sphere.normalize(x @ turn)
    mean_turned, log_z_turned, error_turned = attend_sphere_grid(turned, turned, turned, m, 50.0, 1e-9)
    assert float((mean @ turn - mean_turned).norm(dim=1).max()) <= error + error_turned
    assert float((log_z - log_z_turned).abs().max()) <= error + error_turned


@pytest.mark.parametrize(("width", "ratio"), WINDOWS)
@pytest.mark.parametrize("mode", [0, 1, 7, 19])
def test_the_window_reproduces_each_mode_to_its_stated_error(width, ratio, mode) -> None:
    fine = 60
    kept = window(width, ratio, fine)
    x = np.random.default_rng(0).uniform(0.0, fine, 500)
    first = np.ceil(x - width // 2)
    psi = np.zeros((len(x), width))
    for row in kept.table:
        psi = psi * (2.0 * (first - (x - width // 2)) - 1.0)[:, None] + row
    nodes = first[:, None] + np.arange(width)
    value = (psi * np.exp(2j * math.pi * mode / fine * nodes)).sum(axis=1) / kept.transform[mode]
    miss = np.abs(value - np.exp(2j * math.pi * mode / fine * x)).max()
    assert miss <= 1.1 * kept.error[mode] + 1e-14
    assert kept.error[:12].max() <= {8: 1e-6, 16: 1e-11}[width]


@pytest.mark.parametrize("r", [0.3, 10.0, 300.0])
def test_bounds_of_fourier_coefficients(r) -> None:
    x = np.arange(1024) * (2.0 * math.pi / 1024)
    exact = np.abs(np.fft.rfft(np.exp(r * (np.cos(x) - 1.0)))) / 1024
    assert np.allclose(von_mises(r, 200), exact[:200], atol=1e-15)
    rng = np.random.default_rng(1)
    for _ in range(5):
        matrix = r * (np.eye(3) + 0.2 * rng.standard_normal((3, 3)))
        sizes = np.linalg.svd(matrix, compute_uv=False)
        circle, _ = np.linalg.qr(rng.standard_normal((3, 3)))
        height = rng.uniform(0.0, 1.0)
        ring = np.outer(np.cos(x), circle[0]) + np.outer(np.sin(x), circle[1])
        z = (math.sqrt(1.0 - height**2) * ring + height * circle[2]) @ matrix.T
        k = sphere.uniform(1, 3, seed=int(rng.integers(100)))[0].numpy()
        for soft in (0.0, 2.0, 20.0):
            values = np.exp(z @ k - np.sqrt((z**2).sum(axis=1) + soft**2))
            found = np.abs(np.fft.rfft(values)) / 1024
            assert (found[:300] <= ellipsoid(sizes[0], sizes[2], soft, 300) + 1e-15).all()


def test_the_norm_of_interpolation_is_that_of_its_worst_data() -> None:
    n = 24
    modes = np.arange(1 - n // 2, n // 2)
    nodes = np.arange(n) * (2.0 * math.pi / n)
    at = np.linspace(0.0, 2.0 * math.pi, 4001)
    cardinal = np.exp(1j * (at[:, None, None] - nodes[:, None]) * modes).sum(axis=2).real / n
    norm = np.abs(cardinal).sum(axis=1).max()
    assert norm * (1.0 - 1e-2) <= lebesgue(n) <= norm * (1.0 + 1e-6)
    assert lebesgue(2000) ** 2 * (1.0 + lebesgue(2000)) * 2.0 <= 400.0


def test_rings_and_nodes_are_the_same_sums() -> None:
    rings, count, r = 10, 20, 6.0
    weights = np.random.default_rng(3).standard_normal((rings, count))
    theta = (np.arange(rings) + 0.5) * (math.pi / rings)
    phi = np.arange(count) * (2.0 * math.pi / count)
    high, low = np.sin(theta), np.cos(theta)
    k = np.stack(
        [np.outer(high, np.cos(phi)), np.outer(high, np.sin(phi)), np.outer(low, np.ones(count))], axis=2
    ).reshape(-1, 3)
    pairs = np.exp(r * (k @ k.T - 1.0))
    expected = np.column_stack(
        (pairs @ (weights.reshape(-1, 1) * k), pairs @ weights.ravel(), pairs @ np.abs(weights.ravel()))
    )
    along, largest = attend_rings(r, weights, 100.0)
    sums = np.fft.irfft(along, n=count).transpose(0, 2, 1).reshape(-1, 4)
    assert np.allclose(sums, expected[:, :4], rtol=0.0, atol=1e-13)
    assert largest == pytest.approx(expected[:, 4].max(), rel=1e-13)
    near = np.empty_like(expected)
    counts = np.full(rings, count)
    attend_nodes(r * k, theta, counts, weights, 0.0, 100.0, near)
    assert np.allclose(near, expected, rtol=0.0, atol=1e-13)
    attend_nodes(r * k, theta, counts, weights, 0.0, 4.0, near)
    dropped = math.exp(-4.0) * np.abs(weights).sum()
    assert 0.0 < np.abs(near - expected).max() <= dropped
    along, _ = attend_rings(r, weights, 4.0)
    sums = np.fft.irfft(along, n=count).transpose(0, 2, 1).reshape(-1, 4)
    assert 0.0 < np.abs(sums - expected[:, :4]).max() <= dropped


def test_auto_takes_the_grid_for_uniform_tokens_and_says_so() -> None:
    x = tokens("uniform", 6000, 2)
    fast = attend(x, x, beta=40.0, rtol=1e-9)
    assert fast.kernel == "sphere_grid" and fast.error is not None and fast.error <= 1e-9
    exact = attend(x[:40], x, beta=40.0)
    assert float((fast.mean[:40] - exact.mean).norm(dim=1).max()) <= fast.error


def test_queries_off_any_surface_and_bad_input_are_refused() -> None:
    x = tokens("uniform", 50, 0)
    lengths = torch.linspace(0.5, 1.5, 50, dtype=torch.float64)[:, None]
    with pytest.raises(InvalidInput, match="a matrix times the keys"):
        attend_sphere_grid(lengths * x, x, x, equal(50), 1.0, 1e-6)
    assert grid_cost(lengths * x, x, equal(50), 1.0, 1e-6) == math.inf
    with pytest.raises(InvalidInput, match="other values"):
        attend_sphere_grid(x, x, 2.0 * x, equal(50), 1.0, 1e-6)
    with pytest.raises(InvalidInput, match="rtol"):
        attend_sphere_grid(x, x, x, equal(50), 1.0, 0.0)
    empty = attend_sphere_grid(x[:0], x, x, equal(50), 1.0, 1e-6)
    assert empty[0].shape == (0, 3) and empty[2] == 0.0
