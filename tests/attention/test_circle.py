"""The cell method on the circle: its tolerance and its error estimate, against the dense formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ive

from attention.attention_reference import exact, masses
from metastable.attention import attend
from metastable.attention.circle.cells import attend_circle
from metastable.attention.circle.curve import fit_ellipse
from metastable.attention.circle.keys import COARSEST, circle_cells, diamond, gather_keys
from metastable.errors import InvalidInput

ARRANGEMENTS = ("uniform", "clustered", "antipodal", "duplicate", "gap", "point")
MATRICES = {
    "I": [[1.0, 0.0], [0.0, 1.0]],
    "turn": [[0.0, -1.0], [1.0, 0.0]],
    "B": [[1.0, 0.5], [-0.3, 0.8]],
    "-": [[-1.0, 0.0], [0.0, 2.0]],
}


def circle(n, arrangement, seed):
    rng = np.random.default_rng(seed)
    angle = rng.uniform(0, 2 * math.pi, n)
    if arrangement == "clustered":
        angle = rng.integers(3, size=n) * 1.3 + 1e-3 * rng.normal(size=n)
    if arrangement == "antipodal":
        angle[n // 2 :] = angle[: n - n // 2] + math.pi
    if arrangement == "duplicate":
        angle = angle[rng.integers(min(5, n), size=n)]
    if arrangement == "gap":
        angle = 0.05 * angle
    if arrangement == "point":
        angle[:] = angle[0]
    return torch.from_numpy(np.stack([np.cos(angle), np.sin(angle)], axis=1))


def off_by(result, queries, keys, mass, beta):
    mean, log_partition = exact(queries, keys, keys, mass, beta)
    apart = np.linalg.norm((np.asarray(result[0]) - mean).astype(float), axis=1).max()
    return max(float(apart), float(np.abs(np.asarray(result[1]) - log_partition).max()))


@pytest.mark.parametrize("rtol", [1e-10, 1e-5])
@pytest.mark.parametrize("beta", [0.0, 1e-3, 1.0, 7.0, 64.0, 512.0, 4096.0, 1e4])
@given(
    n=st.sampled_from([1, 3, 40, 700]),
    n_q=st.sampled_from([1, 30, 500]),
    arrangement=st.sampled_from(ARRANGEMENTS),
    matrix=st.sampled_from(sorted(MATRICES)),
    own=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_tolerance_is_met_and_the_estimate_holds(rtol, beta, n, n_q, arrangement, matrix, own, seed):
    keys, mass = circle(n, arrangement, seed), masses(n, seed)
    queries = keys if own else circle(n_q, "uniform", seed + 1)
    queries = (queries @ torch.tensor(MATRICES[matrix], dtype=torch.float64)).contiguous()
    *result, error = attend_circle(queries, keys, keys, mass, beta, rtol)
    assert off_by(result, queries, keys, mass, beta) <= error <= rtol


@pytest.mark.parametrize("rtol", [1e-10, 1e-5])
@pytest.mark.parametrize("beta", [1.0, 30.0, 1000.0])
@pytest.mark.parametrize("lengths", ["equal", "ellipse", "gaussian"])
@pytest.mark.parametrize("arrangement", ["uniform", "clustered", "gap"])
def test_interpolated_patches(rtol, beta, lengths, arrangement):
    """Enough queries that most are interpolated; checked on a sample of them."""
    n = 20_000
    keys, mass = circle(n, arrangement, 0), masses(n, 1)
    queries = circle(n, "uniform", 2)
    if lengths == "ellipse":
        queries = queries @ torch.tensor(MATRICES["B"], dtype=torch.float64)
    if lengths == "gaussian":
        queries = torch.from_numpy(np.random.default_rng(3).normal(size=(n, 2)))
    mean, log_partition, error = attend_circle(queries, keys, keys, mass, beta, rtol)
    sample = slice(None, None, 401)
    off = off_by((mean[sample], log_partition[sample]), queries[sample], keys, mass, beta)
    assert off <= error <= rtol


@pytest.mark.parametrize("off", [0.0, 1e-15, 1e-12, 1e-7, 0.1])
@pytest.mark.parametrize("second_axis", [1.0, 1e-3, 1e-6, 0.0])
def test_queries_near_an_ellipse(off, second_axis):
    """From queries on one ellipse to any queries, from a circle to a segment: the tolerance holds throughout."""
    rng = np.random.default_rng(0)
    keys, mass = circle(3000, "clustered", 0), masses(3000, 1)
    queries = circle(3000, "uniform", 2).numpy() @ rng.normal(size=(2, 2)) @ np.diag([1.0, second_axis])
    queries = torch.from_numpy((queries @ rng.normal(size=(2, 2))) * (1 + off * rng.normal(size=(3000, 1))))
    mean, log_partition, error = attend_circle(queries, keys, keys, mass, 40.0, 1e-10)
    sample = slice(None, None, 101)
    assert off_by((mean[sample], log_partition[sample]), queries[sample], keys, mass, 40.0) <= error <= 1e-10


def test_ellipse_of_the_queries():
    """B^T x lies on an ellipse with the singular values of B as half axes; other queries on none."""
    x, matrix = circle(1000, "uniform", 0).numpy(), np.array(MATRICES["B"])
    found = fit_ellipse(x @ matrix)
    assert found is not None
    np.testing.assert_allclose(np.linalg.norm(x @ matrix @ found.to_circle, axis=1), 1.0, rtol=1e-13)
    np.testing.assert_allclose(np.linalg.svd(found.from_circle)[1], np.linalg.svd(matrix)[1], rtol=1e-12)
    assert found.longest == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-12)
    assert fit_ellipse(np.random.default_rng(0).normal(size=(1000, 2))) is None
    assert fit_ellipse(x @ np.array([[1.0, 2.0], [2.0, 4.0]])) is None
    assert fit_ellipse(np.zeros((10, 2))) is None


def test_uniform_density_closed_form():
    """Equispaced tokens are the uniform density to all digits: m = A_2(beta) x, Z = I_0(beta)."""
    angle = 2 * math.pi * (torch.arange(4096, dtype=torch.float64) + 0.5) / 4096
    x = torch.stack([angle.cos(), angle.sin()], dim=1)
    mass = torch.full((4096,), 1 / 4096, dtype=torch.float64)
    for beta in (1.0, 50.0, 2000.0):
        mean, log_partition, _ = attend_circle(x, x, x, mass, beta, 1e-10)
        np.testing.assert_allclose(mean, x * (ive(1, beta) / ive(0, beta)), atol=1e-10)
        np.testing.assert_allclose(log_partition, np.full(4096, np.log(ive(0, beta)) + beta), atol=1e-10)


def test_estimate_flags_what_the_method_gets_wrong():
    """Keys off the circle, and a softmax sharper than the finest cells: the error says so."""
    x = circle(2000, "uniform", 0)
    mass = torch.full((2000,), 1 / 2000, dtype=torch.float64)
    longer = 1.001 * x
    *result, error = attend_circle(longer, longer, longer, mass, 50.0, 1e-8)
    assert error > 1e-8
    assert off_by([r[::50] for r in result], longer[::50], longer, mass, 50.0) <= error
    sparse = circle(300, "uniform", 1)
    *result, error = attend_circle(x, sparse, sparse, mass[:300], 3e6, 1e-10)
    assert off_by([r[::50] for r in result], x[::50], sparse, mass[:300], 3e6) <= max(error, 1e-10)


def test_attend_chooses_the_circle_and_reports_its_error():
    x = circle(5000, "uniform", 0)
    fast, all_digits = attend(x, x, beta=20.0, rtol=1e-8), attend(x, x, beta=20.0)
    assert fast.kernel == "circle" and all_digits.kernel == "fused"
    assert fast.error is not None and fast.error <= 1e-8
    assert float((fast.mean - all_digits.mean).norm(dim=1).max()) <= fast.error
    assert attend(x, 1.1 * x, beta=20.0, rtol=1e-8).kernel == "fused"
    assert attend(x, x, beta=20.0, rtol=1e-14).kernel == "fused"
    assert attend(x[:50], x[:50], beta=20.0, rtol=1e-8).kernel == "fused"
    assert attend(x, x, beta=20.0, kernel="circle").error <= 1e-10


def test_circle_refuses_what_it_cannot_do():
    with pytest.raises(InvalidInput, match="own values"):
        attend(circle(5, "uniform", 0), circle(5, "uniform", 1), values=np.ones((5, 1)), kernel="circle")
    with pytest.raises(InvalidInput, match="plane"):
        attend(np.eye(3), np.eye(3), kernel="circle")


def test_proxies_carry_the_mass():
    """Constants are interpolated exactly: every level carries the mass of all keys."""
    x, m = circle(3000, "uniform", 0).numpy(), masses(3000, 0).numpy()
    found, off_circle = gather_keys(x, m, 8, 16)
    assert off_circle < 1e-14
    for level in range(COARSEST, 9):
        first = 2**level - 2**COARSEST
        np.testing.assert_allclose(found.weight[first : first + 2**level].sum(), m.sum(), rtol=1e-13)


def test_cells_cover_the_circle():
    cells = circle_cells(9)
    for level in range(COARSEST, 10):
        first = 2**level - 2**COARSEST
        assert cells.half[first : first + 2**level].sum() == pytest.approx(math.pi, rel=1e-14)
    angle = np.linspace(-3, 3, 101)
    order = [diamond(math.cos(a), math.sin(a)) for a in angle % (2 * math.pi)]
    assert np.array_equal(np.argsort(order), np.argsort(angle % (2 * math.pi)))
