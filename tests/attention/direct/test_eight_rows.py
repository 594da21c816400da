"""The kernel for eight rows at a time, against sums in extended precision."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.direct.eight_rows import CHUNK, rows_kernel

KINDS = [(in_exponent, causal) for in_exponent in (False, True) for causal in (False, True)]
SHARP = [kind for kind in KINDS if kind != (False, True)]
"""A causal row that is too sharp for its bound has the logarithms of masses in its exponents."""


def problem(seed, n, count, d, d_v, length, spread=0.0):
    """Queries, and rows [k | v | log2 m] of keys with a largest mass of one."""
    rng = np.random.default_rng(seed)
    queries = length * rng.normal(size=(n, d))
    keys = np.concatenate([rng.normal(size=(count, d)), rng.normal(size=(count, d_v))], axis=1)
    exponent = -spread * rng.random(count)
    exponent[rng.integers(count)] = 0.0
    return queries, np.concatenate([keys, exponent[:, None]], axis=1)


def attended(case, d, in_exponent, causal, rows=None, offset=1, scale=1.3, absent=()):
    """(mean, log Z) of some rows, zero and -infinity elsewhere."""
    queries, keys = case[0], case[1].copy()
    n, d_v = len(queries), keys.shape[1] - d - 1
    if in_exponent:
        keys[list(absent), -1] = -1e300
    else:
        keys[:, -1] = np.exp2(keys[:, -1])
        keys[list(absent), -1] = 0.0
        keys[:, d:-1] *= keys[:, -1:]
    radius = np.linalg.norm(keys[:, :d], axis=1).max()
    mean, log_partition = np.zeros((n, d_v)), np.full(n, -np.inf)
    start, stop = rows or (0, n)
    kernel = rows_kernel(d, d_v, in_exponent, causal)
    kernel(queries, keys, len(keys), scale, radius, 0.25, offset, start, stop, mean, log_partition)
    return mean, log_partition


def one_by_one(case, d, causal, offset=1, scale=1.3, absent=()):
    """The same, row by row in extended precision."""
    queries, keys = (a.astype(np.longdouble) for a in case)
    exponent = keys[:, -1].copy()
    exponent[list(absent)] = -np.inf
    mean, log_partition = np.zeros((len(queries), keys.shape[1] - d - 1)), np.full(len(queries), -np.inf)
    for i, query in enumerate(queries):
        seen = min(i + offset, len(keys)) if causal else len(keys)
        t = scale * (keys[:seen, :d] @ query) + exponent[:seen]
        if seen == 0 or t.max() == -np.inf:
            continue
        weight = np.exp2(t - t.max())
        mean[i] = weight @ keys[:seen, d:-1] / weight.sum()
        log_partition[i] = (t.max() + np.log2(weight.sum())) * np.log(np.longdouble(2)) + 0.25
    return mean, log_partition


def assert_close(found, expected, case, d, scale=1.3):
    """To some roundings of the largest exponent."""
    queries, keys = case
    largest = scale * np.linalg.norm(queries, axis=1).max() * np.linalg.norm(keys[:, :d], axis=1).max()
    unit = 2.3e-16 * (1 + largest + np.abs(keys[:, -1]).max())
    assert (np.isfinite(found[1]) == np.isfinite(expected[1])).all()
    finite = np.isfinite(expected[1])
    assert np.abs(found[0] - expected[0]).max() < 30 * unit
    assert np.abs(found[1][finite] - expected[1][finite]).max(initial=0.0) < 30 * unit


@pytest.mark.parametrize(("in_exponent", "causal"), KINDS)
@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("n", [1, 7, 8, 9, 64, 65, CHUNK - 1, CHUNK + 1, 2 * CHUNK + 77])
def test_any_number_of_rows(n, offset, in_exponent, causal):
    case = problem(n, n, n, 3, 2, 2.0, spread=4.0)
    found = attended(case, 3, in_exponent, causal, offset=offset)
    assert_close(found, one_by_one(case, 3, causal, offset), case, 3)


@pytest.mark.parametrize(("in_exponent", "causal"), SHARP)
@pytest.mark.parametrize("length", [30.0, 1000.0, 1e5])
def test_rows_too_sharp_for_their_bound(length, in_exponent, causal):
    """The maximum runs: some rows of a group find theirs in the first keys, others in the last."""
    case = problem(5, 200, 700 if not causal else 200, 2, 2, length)
    case[0][::3] /= length  # and some need none
    case[1][:, :2] *= np.linspace(0.1, 1.0, len(case[1]))[:, None]
    assert_close(attended(case, 2, in_exponent, causal), one_by_one(case, 2, causal), case, 2)


@pytest.mark.parametrize("falling", [False, True])
def test_chunks_that_are_left_out(falling):
    """Scores that rise, and fall, by more than `floor` from one chunk to the next."""
    n, step = 4 * CHUNK, 4000.0
    case = problem(7, 48, n, 2, 2, 0.0)
    case[0][:, 0] = np.linspace(1.0, 2.0, 48)
    level = np.arange(n) // CHUNK
    case[1][:, :2] *= 0.1
    case[1][:, 0] += step * (3 - level if falling else level)
    assert_close(attended(case, 2, False, False), one_by_one(case, 2, False), case, 2)


@pytest.mark.parametrize("d", range(1, 9))
def test_up_to_eight_columns(d):
    for in_exponent, causal in KINDS:
        case = problem(d, 30, 30, d, 9 - d, 1.0)
        found = attended(case, d, in_exponent, causal)
        assert_close(found, one_by_one(case, d, causal), case, d)


@pytest.mark.parametrize("in_exponent", [False, True])
def test_masses_of_zero_before_others(in_exponent):
    case, absent = problem(2, 40, 40, 2, 2, 1.0), [*range(13), 20, 21]
    found = attended(case, 2, in_exponent, True, absent=absent)
    assert (found[1][:13] == -np.inf).all() and not found[0][:13].any()
    assert_close(found, one_by_one(case, 2, True, absent=absent), case, 2)


def test_masses_over_a_thousand_decades():
    case = problem(3, 60, 60, 2, 2, 1.0, spread=3000.0)
    assert_close(attended(case, 2, True, True), one_by_one(case, 2, True), case, 2)


@pytest.mark.parametrize(
    ("length", "in_exponent", "causal"), [(1.0, *kind) for kind in KINDS] + [(1000.0, *kind) for kind in SHARP]
)
def test_digits_do_not_depend_on_the_group(length, in_exponent, causal):
    """Every row alone, in groups that begin anywhere, and all at once."""
    case = problem(11, 2 * CHUNK + 5, 2 * CHUNK + 5, 2, 2, length)
    together = attended(case, 2, in_exponent, causal)
    for rows in ((0, 1), (3, 10), (CHUNK - 3, CHUNK + 30), (2 * CHUNK - 1, 2 * CHUNK + 5)):
        part = attended(case, 2, in_exponent, causal, rows)
        for found, expected in zip(part, together, strict=True):
            assert (found[slice(*rows)] == expected[slice(*rows)]).all()
        assert not part[0][: rows[0]].any() and not part[0][rows[1] :].any()
