"""Polynomials of a node of keys at a node of queries, against the sums themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metastable.attention.nearby.taylor import MOST_DEGREE, least_degree, monomials, taylor_kernel


@pytest.mark.parametrize("d", [2, 3])
def test_the_table_holds_every_monomial_once(d):
    table = monomials(d)
    powers = np.zeros((len(table.parent), d), dtype=int)
    for term in range(1, len(powers)):
        powers[term] = powers[table.parent[term]]
        powers[term, table.axis[term]] += 1
    assert len({tuple(row) for row in powers}) == len(powers) == math.comb(MOST_DEGREE + d, d)
    assert all(powers[:end].sum(axis=1).max() == degree for degree, end in enumerate(table.ends))
    for term in range(table.ends[-2]):
        for c in range(d):
            assert np.array_equal(powers[table.above[term, c]] - powers[term], np.eye(d, dtype=int)[c])


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("tau", [1e-6, 0.05, 0.7, 1.3])
def test_the_error_is_below_the_bound(d, tau):
    rng = np.random.default_rng(d)
    n_k, n_q = 150, 70
    k_c, z_c = rng.normal(size=d), 3 * rng.normal(size=d)
    a, b = rng.normal(size=(d, n_q)), rng.normal(size=(d, n_k))
    a *= math.sqrt(tau) / np.linalg.norm(a, axis=0).max()
    b *= math.sqrt(tau) / np.linalg.norm(b, axis=0).max()
    keys, queries = np.concatenate([k_c[:, None] + b, rng.random((1, n_k))]), z_c[:, None] + a
    floor = rng.normal(size=n_q)
    weights = keys[d] * np.exp(queries.T @ keys[:d] - floor[:, None])
    for allowed in (1e-3, 1e-9):
        degree = least_degree(tau, allowed)
        assert degree > 0
        sums = np.zeros((d + 1, n_q))
        taylor_kernel(d)(keys, 0, n_k, queries, 0, n_q, k_c, z_c, degree, monomials(d), floor, sums)
        total = weights.sum(axis=1)
        assert np.abs(sums[d] / total - 1).max() <= allowed
        means = (weights @ keys[:d].T) / total[:, None]
        longest = np.linalg.norm(keys[:d], axis=0).max()
        assert np.abs(sums[:d].T / total[:, None] - means).max() <= 2 * longest * allowed


def test_no_degree_for_what_is_too_large():
    assert least_degree(5.0, 1e-10) == 0
    assert least_degree(1e-3, 1e-10) < least_degree(1.0, 1e-10)
