"""Groups of rows over eight keys at a time against the same sums written out, whatever keys rows see."""

import numpy as np
import pytest
from numba import njit

from metastable.attention.direct.adjoint_lanes import FLOOR, group_kernel, numbers_of_a_row, rows_at_once


def called(d):
    add = group_kernel(d)

    @njit
    def call(keys, by_key, b, even, last, rows, seen, sums):
        add(keys, by_key, b, even, last, rows, seen, sums)

    return call


def problem(d, blocks, n, seed):
    draw = np.random.default_rng(seed)
    keys = draw.normal(size=(blocks, d + 1, n))
    rows = draw.normal(size=(rows_at_once(d), numbers_of_a_row(d)))
    return keys, rows, draw.normal(size=(blocks, d, n))


def written_out(d, keys, rows, b, seen):
    """by_query (group, d) and by_key (d, n) of one block."""
    q, g, plain, less, minus = np.split(rows, np.cumsum([d, d, d, 1]), axis=1)
    y, log_mass = keys[b, :d], keys[b, d]
    weight = np.exp2(np.maximum(q @ y + log_mass + less, FLOOR)) * (np.arange(y.shape[1]) < np.array(seen)[:, None])
    change = weight * (g @ y + minus)
    return change @ y.T, g.T @ weight + plain.T @ change


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("seen", [(24, 24, 24, 24), (17, 18, 19, 20), (3, 0, 9, 24), (5, 5, 0, 0)])
def test_both_sums_are_those_of_the_formula_and_add_to_what_was_there(d, seen):
    keys, rows, before = problem(d, blocks=2, n=24, seed=d)
    seen = np.array(seen[: rows_at_once(d)])
    for b in range(2):
        by_key, sums = before.copy(), np.empty((rows_at_once(d), d, 8))
        called(d)(keys, by_key, b, int(seen.min()) // 8 * 8, int(seen.max()), rows, seen, sums)
        of_query, of_key = written_out(d, keys, rows, b, seen)
        np.testing.assert_allclose(sums.sum(2), of_query, rtol=0, atol=1e-12 * np.abs(of_query).max())
        np.testing.assert_allclose(by_key[b] - before[b], of_key, rtol=0, atol=1e-12 * max(np.abs(of_key).max(), 1))
        assert (by_key[1 - b] == before[1 - b]).all()


def test_weights_far_below_a_row_are_raised_to_a_normal_number():
    keys, rows, _ = problem(2, blocks=1, n=8, seed=0)
    keys[0, 2] = -1e300
    by_key, sums, seen = np.zeros((1, 2, 8)), np.empty((rows_at_once(2), 2, 8)), np.full(rows_at_once(2), 8)
    called(2)(keys, by_key, 0, 8, 8, rows, seen, sums)
    size = np.abs(by_key)
    assert (size > np.finfo(np.float64).tiny).all() and (size < 1e-205).all()


def test_flags_of_a_caller_do_not_reach_the_exponentials():
    from metastable.attention.direct.adjoint import adjoint_kernel
    from metastable.attention.exp2 import REDUCTION

    kernel, d, n = adjoint_kernel(2), 2, 9

    @njit(fastmath=REDUCTION)
    def call(q, keys, n, log_z, g, s, by_query, by_key):
        kernel(q, keys, n, n, log_z, g, s, 0, n, by_query, by_key)

    draw, keys = np.random.default_rng(3), np.zeros((1, d + 1, 16))
    q, g, s = draw.normal(size=(n, d)), draw.normal(size=(n, d)), draw.normal(size=n)
    keys[0, :d, :n] = draw.normal(size=(d, n))
    t = q @ keys[0, :d, :n] * np.log2(np.e)
    log_z = np.log2(np.exp2(t).sum(axis=1))
    by_query, by_key = np.zeros((n, d)), np.zeros((1, d, 16))
    call(q, keys, n, log_z, g, s, by_query, by_key)
    weight = np.exp2(t - log_z[:, None])
    change = weight * (g @ keys[0, :d, :n] - s[:, None])
    np.testing.assert_allclose(by_query, change @ keys[0, :d, :n].T, rtol=0, atol=1e-13)
    np.testing.assert_allclose(by_key[0, :, :n], g.T @ weight + q.T @ change, rtol=0, atol=1e-13)
