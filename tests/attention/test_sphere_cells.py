"""Attention on S^2 by cells: closed forms, and the honesty of the error bound against the dense kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metastable import sphere
from metastable.attention.direct.dense import attend_dense
from metastable.attention.sphere.cells import _ORDERS, attend_sphere_cells
from metastable.attention.sphere.proxies import proxies
from metastable.attention.sphere.tree import key_tree
from metastable.attention.sphere.walk import descend, least_order
from metastable.errors import InvalidInput

KINDS = ("uniform", "clustered", "antipodal", "duplicate", "tight", "great circle", "disc")


def tokens(kind: str, n: int, seed: int) -> torch.Tensor:
    """Unit vectors (n, 3) of several shapes."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    pick = torch.randint(0, 5, (n,), generator=generator)
    centres = sphere.uniform(5, 3, seed=seed + 1)
    if kind == "clustered":
        x = centres[pick] + 0.05 * x
    elif kind == "tight":
        x = centres[pick] + 1e-7 * x
    elif kind == "antipodal":
        x = torch.where(pick[:, None] > 2, centres[0], -centres[0]) + 0.01 * x
    elif kind == "duplicate":
        x = centres[pick]
    elif kind == "great circle":
        x[:, 2] *= 1e-9
    elif kind == "disc":  # a sharp rim, where attention sits when B turns the queries away
        x = centres[0] + 0.2 * x / x.norm(dim=1, keepdim=True)
    return x / x.norm(dim=1, keepdim=True)


def masses(n: int, seed: int) -> torch.Tensor:
    """Masses over nine orders of magnitude, some of them zero."""
    generator = torch.Generator().manual_seed(seed)
    m = 10.0 ** (-9.0 * torch.rand(n, generator=generator, dtype=torch.float64))
    m[torch.rand(n, generator=generator) < 0.1] = 0.0
    m[0] = 1e-3
    return m / m.sum()


def differences(queries, keys, mass, beta, rtol, rows=64):
    """(largest error of mean and log Z on sampled rows against the dense kernel, the bound)."""
    mean, log_z, error = attend_sphere_cells(queries, keys, keys, mass, beta, rtol)
    sample = torch.arange(0, len(queries), max(len(queries) // rows, 1))
    dense_mean, dense_log_z = attend_dense(queries[sample], keys, keys, mass, beta)
    gap = max(
        float((mean[sample] - dense_mean).norm(dim=1).max()), float((log_z[sample] - dense_log_z).abs().max())
    )  # fmt: skip
    return gap, error


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
    mass = masses(n, seed) if weighted else torch.full((n,), 1.0 / n, dtype=torch.float64)
    gap, error = differences(queries, x, mass, beta, rtol)
    assert gap <= error
    longest = beta * float(queries.norm(dim=1).max())
    assert error <= rtol + 2e-14 * (64.0 + longest) + longest * 1e-15


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("beta", [4.0, 200.0, 1e4])
def test_many_tokens_with_proxies_and_expansions(kind, beta) -> None:
    x = tokens(kind, 30_000, 3)
    b = torch.tensor([[1.0, 0.3, 0.0], [-0.5, 0.2, 0.7], [0.1, -0.4, -0.6]], dtype=torch.float64)
    mass = torch.full((len(x),), 1.0 / len(x), dtype=torch.float64)
    gap, error = differences(x @ b, x, mass, beta, 1e-7, rows=200)
    assert gap <= error <= 1.1e-7


def test_uniform_density_gives_the_bessel_ratio() -> None:
    """On S^2, sum over the uniform measure is sinh(z)/z and its mean coth z - 1/z."""
    nodes, weights = sphere.product_gauss(200)
    queries = torch.tensor([[0.0, 0.0, 1.0], [0.6, 0.0, -0.8]], dtype=torch.float64)
    mean, log_z, error = attend_sphere_cells(queries, nodes, nodes, weights, 30.0, 1e-9)
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
    gap, error = differences(queries, keys, mass, 20.0, 1e-6, rows=3000)
    assert gap <= error


def test_beta_zero_is_the_mean_of_the_keys() -> None:
    x, m = tokens("uniform", 2000, 0), masses(2000, 0)
    mean, log_z, _ = attend_sphere_cells(x, x, x, m, 0.0, 1e-8)
    assert torch.allclose(mean, (m @ x).expand(2000, 3), atol=1e-12)
    assert float(log_z.abs().max()) < 1e-12


def test_a_rotation_of_everything_rotates_the_means() -> None:
    x, m = tokens("clustered", 3000, 5), masses(3000, 5)
    rotation, _ = torch.linalg.qr(
        torch.randn(3, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    )
    mean, log_z, error = attend_sphere_cells(x, x, x, m, 50.0, 1e-8)
    turned = x @ rotation
    turned = turned / turned.norm(dim=1, keepdim=True)
    mean_turned, log_z_turned, error_turned = attend_sphere_cells(turned, turned, turned, m, 50.0, 1e-8)
    assert float((mean @ rotation - mean_turned).norm(dim=1).max()) <= error + error_turned
    assert float((log_z - log_z_turned).abs().max()) <= error + error_turned


def test_a_tighter_tolerance_gives_a_smaller_error() -> None:
    x = tokens("clustered", 4000, 7)
    m = torch.full((4000,), 1.0 / 4000, dtype=torch.float64)
    gaps = [differences(x, x, m, 30.0, rtol)[0] for rtol in (1e-2, 1e-5, 1e-8)]
    assert gaps[0] > 10 * gaps[1] > 100 * gaps[2] > 0.0


def test_cells_reproduce_polynomials_of_the_face_coordinates_exactly() -> None:
    """Proxies, inherited moments and lower orders all integrate degree p - 1 in each face coordinate."""
    x, m = tokens("uniform", 20_000, 9).numpy(), masses(20_000, 9).numpy() + 1e-6
    tree = key_tree(x, m, _ORDERS)
    checked = 0
    for cell in np.flatnonzero(tree.order >= 0)[::7]:
        face, offset = tree.face[cell] // 2, tree.offset[cell]
        keys = tree.keys[:, tree.start[cell] : tree.stop[cell]]
        for p in tree.orders[: tree.order[cell] + 1]:
            at = np.empty((3, p * p))
            proxies(tree, cell, p, at)
            weights = tree.weights[offset : offset + p * p]
            offset += p * p
            one, two = (face + 1) % 3, (face + 2) % 3
            for points, w in ((at, weights),):
                left = (w * (points[one] / points[face]) ** (p - 1) * (points[two] / points[face]) ** 2).sum()
                right = (keys[3] * (keys[one] / keys[face]) ** (p - 1) * (keys[two] / keys[face]) ** 2).sum()
                assert left == pytest.approx(right, rel=1e-9, abs=1e-13)
                checked += 1
    assert checked > 50


@given(log_beta=st.floats(-1.0, 4.0), direction=st.integers(0, 1000), cell=st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_the_cell_bound_holds(log_beta, direction, cell) -> None:
    """The interpolation error of e^{<z, k>} at all keys of a cell is below what `least_order` promises."""
    tree = _TREE
    owners = np.flatnonzero(tree.order >= 0)
    cell = int(owners[cell % len(owners)])
    z = sphere.uniform(1, 3, seed=direction)[0].numpy() * 10.0**log_beta
    size, axis = float(np.linalg.norm(z)), tree.cone[cell, :3]
    along = float(z @ axis)
    angle = math.atan2(float(np.linalg.norm(z - along * axis)), along)
    keys, mass = tree.keys[:3, tree.start[cell] : tree.stop[cell]], tree.keys[3, tree.start[cell] : tree.stop[cell]]
    exact = (mass * np.exp(z @ keys - size)).sum()
    offset = tree.offset[cell]
    for p in tree.orders[: tree.order[cell] + 1]:
        needed, slope = least_order(0.0, along, size, angle, 0.0, size - along, tree.chart[cell], 0.0)
        at = np.empty((3, p * p))
        proxies(tree, cell, p, at)
        weights = tree.weights[offset : offset + p * p]
        offset += p * p
        # Mass 1 and G = e^{<z, c>} make the bound relative to the centre of the cell.
        log_bound = -slope * (p - needed) + along - size
        miss = abs((weights * np.exp(z @ at - size)).sum() - exact)
        assert miss <= mass.sum() * (math.exp(min(log_bound, 1.0)) + 1e-13)


@given(kind=st.sampled_from(KINDS), log_beta=st.floats(-1.0, 4.5), direction=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_the_first_guess_of_a_partition_is_a_bound_near_its_heaviest_key(kind, log_beta, direction) -> None:
    """Near in the sense of e^2: a guess far below would keep the walk from dropping anything."""
    x, m = tokens(kind, 3000, 2).numpy(), masses(3000, 2).numpy() + 1e-12
    tree = key_tree(x, m, _ORDERS)
    z = sphere.uniform(1, 3, seed=direction)[0].numpy() * 10.0**log_beta
    reference = np.empty(3)
    guess = descend(tree, z, reference) + float(z @ reference)
    scores = np.log(m) + x @ z
    assert guess <= np.logaddexp.reduce(scores) + 1e-9
    assert guess >= scores.max() - 2.0 - 1e-9


_TREE = key_tree(tokens("uniform", 6000, 4).numpy(), np.full(6000, 1.0 / 6000), _ORDERS)


def test_other_values_and_bad_input_are_refused() -> None:
    x = tokens("uniform", 10, 0)
    m = torch.full((10,), 0.1, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="other values"):
        attend_sphere_cells(x, x, 2.0 * x, m, 1.0, 1e-6)
    with pytest.raises(InvalidInput, match="unit keys"):
        attend_sphere_cells(x, 2.0 * x, 2.0 * x, m, 1.0, 1e-6)
    with pytest.raises(InvalidInput, match="d = 3"):
        attend_sphere_cells(x[:, :2], x[:, :2], x[:, :2], m, 1.0, 1e-6)
    with pytest.raises(InvalidInput, match="rtol"):
        attend_sphere_cells(x, x, x, m, 1.0, 0.0)
    with pytest.raises(InvalidInput, match="float64"):
        attend_sphere_cells(x.float(), x.float(), x.float(), m, 1.0, 1e-6)


def test_rounding_is_part_of_the_tolerance() -> None:
    """Where rounding takes much of rtol, less is left to the cells, and no quadratic kernel has to step in."""
    keys = sphere.uniform(20_000, 3, seed=0)
    matrix = torch.tensor([[1.0, 0.3, 0.0], [-0.5, 0.2, 0.7], [0.1, -0.4, -0.6]], dtype=torch.float64)
    mass = torch.full((20_000,), 1 / 20_000, dtype=torch.float64)
    _, _, error = attend_sphere_cells(keys @ matrix, keys, keys, mass, 300.0, 1.45e-12)
    assert error <= 1.45e-12
