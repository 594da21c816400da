"""The transpose over pairs that count, against all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attention.nearby.nearby_tokens import Transpose, sorted_tokens
from metastable.attention.nearby import lists_adjoint
from metastable.attention.nearby.lists_adjoint import adjoint_by_lists


def computed(problem, rtol):
    by_query, by_key = np.empty(problem.z.shape), np.empty((3, problem.keys.shape[1]))
    pairs = adjoint_by_lists(*problem.given, math.log(problem.keys[3].sum()), rtol, by_query, by_key)
    return by_query, by_key, pairs


def turned(keys, beta, seed):
    """Queries of many lengths, in directions of their own."""
    matrix = np.eye(3) + 0.2 * np.random.default_rng(seed).normal(size=(3, 3))
    return np.ascontiguousarray(beta * matrix @ keys[:3])


@pytest.mark.parametrize(("beta", "most"), [(0.1, 1.0), (60.0, 0.5), (2000.0, 0.15), (1e6, 0.1)])
@pytest.mark.parametrize("spread", [None, 0.3, 1e-3, 1e-9])
@pytest.mark.parametrize("rtol", [1e-4, 1e-8, 1e-11])
def test_it_is_the_transpose_to_its_tolerance(beta, most, spread, rtol):
    n = 1200
    keys = sorted_tokens(n, 3, seed=3, spread=spread)
    problem = Transpose(keys, turned(keys, beta, seed=2), seed=4, shifted=rtol != 1e-8)
    by_query, by_key, pairs = computed(problem, rtol)
    assert max(problem.errors(by_query, by_key)) < rtol + 1e-15 * (10.0 + beta)
    # The part along the key is there, too: no key is gathered.
    np.testing.assert_allclose(by_key, problem.by_key, rtol=0, atol=1e4 * (1.0 + beta) * (rtol + 1e-15 * beta))
    assert spread is not None or pairs <= most * n * n


@pytest.mark.parametrize("n", [1, 7, 8, 9, 61])
def test_any_number_of_tokens(n):
    keys = np.zeros((4, -(-n // 8) * 8))
    keys[:, :n] = sorted_tokens(n, 3, seed=5)
    keys[:3, n:] = keys[:3, n - 1 : n]
    problem = Transpose(keys, turned(keys[:, :n], 30.0, seed=6), seed=7)
    by_query, by_key, _ = computed(problem, 1e-9)
    assert max(problem.errors(by_query, by_key)) < 1e-9


def test_rows_that_look_away_from_all_keys():
    """Queries on the other side of the sphere from one cluster: e^r is 10^800 times their partition."""
    keys = sorted_tokens(400, 3, seed=8)
    keys[:3] = np.array([[1.0], [0.0], [0.0]]) + 0.01 * keys[:3]
    keys[:3] /= np.linalg.norm(keys[:3], axis=0)
    problem = Transpose(keys, np.ascontiguousarray(-1000.0 * keys[:3]), seed=9)
    by_query, by_key, _ = computed(problem, 1e-9)
    assert max(problem.errors(by_query, by_key)) < 1e-9


def test_the_order_of_pieces_changes_nothing(monkeypatch):
    keys = sorted_tokens(800, 3, seed=10)
    problem = Transpose(keys, turned(keys, 50.0, seed=1), seed=2)
    one = computed(problem, 1e-8)

    def in_turn(work, n, **options):
        for start in reversed(range(n)):
            work(start, start + 1)

    monkeypatch.setattr(lists_adjoint, "over_rows", in_turn)
    again = computed(problem, 1e-8)
    assert all((a == b).all() for a, b in zip(one[:2], again[:2], strict=True)) and one[2] == again[2]
