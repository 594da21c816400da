"""The cell method on the circle: its tolerance and its error estimate, against the dense formula."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ive

from attention.attention_reference import masses
from attention.circle.circle_tokens import ARRANGEMENTS, MATRICES, circle, off_by
from metastable.attention import Operands, attend
from metastable.attention.circle.bounds import WIDER, steepest_key_error
from metastable.attention.circle.cells import MOST_SHARP, attend_circle, finest_level
from metastable.errors import InvalidInput


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
    *result, error = attend_circle(Operands(queries, keys, keys, mass, beta), rtol)
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
    mean, log_partition, error = attend_circle(Operands(queries, keys, keys, mass, beta), rtol)
    sample = slice(None, None, 401)
    off = off_by((mean[sample], log_partition[sample]), queries[sample], keys, mass, beta)
    assert off <= error <= rtol


def test_uniform_density_closed_form():
    """Equispaced tokens are the uniform density to all digits: m = A_2(beta) x, Z = I_0(beta)."""
    angle = 2 * math.pi * (torch.arange(4096, dtype=torch.float64) + 0.5) / 4096
    x = torch.stack([angle.cos(), angle.sin()], dim=1)
    mass = torch.full((4096,), 1 / 4096, dtype=torch.float64)
    for beta in (1.0, 50.0, 2000.0):
        mean, log_partition, _ = attend_circle(Operands(x, x, x, mass, beta), 1e-10)
        np.testing.assert_allclose(mean, x * (ive(1, beta) / ive(0, beta)), atol=1e-10)
        np.testing.assert_allclose(log_partition, np.full(4096, np.log(ive(0, beta)) + beta), atol=1e-10)


def test_estimate_flags_what_the_method_gets_wrong():
    """Keys off the circle, and a softmax sharper than the finest cells: the error says so."""
    x = circle(2000, "uniform", 0)
    mass = torch.full((2000,), 1 / 2000, dtype=torch.float64)
    longer = 1.0000002 * x
    *result, error = attend_circle(Operands(longer, longer, longer, mass, 50.0), 1e-8)
    assert error > 1e-8
    assert off_by([r[::50] for r in result], longer[::50], longer, mass, 50.0) <= error
    sparse = circle(300, "uniform", 1)
    *result, error = attend_circle(Operands(x, sparse, sparse, mass[:300], MOST_SHARP), 1e-12)
    assert off_by([r[::50] for r in result], x[::50], sparse, mass[:300], MOST_SHARP) <= max(error, 1e-12)


def test_circle_refuses_what_it_cannot_do():
    with pytest.raises(InvalidInput, match="own values"):
        attend(circle(5, "uniform", 0), circle(5, "uniform", 1), values=np.ones((5, 1)), kernel="circle")
    with pytest.raises(InvalidInput, match="plane"):
        attend(np.eye(3), np.eye(3), kernel="circle")


def test_the_finest_cells_resolve_what_is_chosen():
    """Up to MOST_SHARP a level is found at which the proxies of a cell meet a tolerance of 1e-10."""
    level = finest_level(MOST_SHARP, 16, 1e-10)
    assert steepest_key_error(WIDER * 4.0 / 2**level, MOST_SHARP, 16) <= 0.2e-10
    assert finest_level(1.0, 16, 1e-10) < level


@pytest.mark.parametrize("beta", [1.0, 100.0])
@pytest.mark.parametrize("n", [16_384, 16_385, 300_000])
def test_the_rounding_of_a_sum_over_equal_keys_is_in_the_error(beta, n):
    """The mean is the key and log Z = beta <q, k>; one sum over all keys would be off by 1e-11 for a million."""
    key = circle(1, "uniform", 3)
    queries = 2 * circle(40, "uniform", 4)
    found = attend(queries, key.repeat(n, 1), beta=beta, kernel="circle", rtol=1e-10)
    off = float((found.mean - key).norm(dim=1).max())
    off_log = float((found.log_partition - beta * (queries @ key[0])).abs().max())
    assert max(off, off_log) <= found.error <= 1e-10
