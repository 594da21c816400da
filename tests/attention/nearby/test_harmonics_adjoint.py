"""The transpose by spherical harmonics, against all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from attention.nearby.nearby_tokens import Transpose, sorted_tokens
from metastable.attention.nearby import harmonics_adjoint
from metastable.attention.nearby.harmonics_adjoint import (
    MOST_DEGREE,
    adjoint_by_harmonics,
    harmonics_adjoint_cost,
    least_degree_of_adjoint,
)


def degree_for(problem, rtol):
    return least_degree_of_adjoint(math.log(problem.keys[3].sum()), problem.z, problem.log_partition, rtol)


def computed(problem, degree):
    by_query, by_key = np.empty(problem.z.shape), np.empty((3, problem.keys.shape[1]))
    adjoint_by_harmonics(*problem.given, problem.mean, degree, by_query, by_key)
    return by_query, by_key


@pytest.mark.parametrize("spread", [None, 0.3, 1e-3])
@pytest.mark.parametrize("beta", [0.0, 1e-9, 0.1, 1.0, 3.0, 8.0])
@pytest.mark.parametrize("rtol", [1e-4, 1e-8, 1e-11])
def test_it_is_the_transpose_to_its_tolerance(spread, beta, rtol):
    n, rng = 603, np.random.default_rng(4)
    keys = sorted_tokens(n, 3, seed=1, spread=spread)
    z = np.ascontiguousarray(beta * (np.eye(3) + 0.3 * rng.normal(size=(3, 3))) @ keys[:3])
    z[:, 0] = 0.0
    problem = Transpose(keys, z, seed=2, shifted=rtol != 1e-8)
    degree = degree_for(problem, rtol)
    if degree < 0:
        assert beta >= 3.0
        return
    assert max(problem.errors(*computed(problem, degree))) < rtol


def test_keys_on_the_axis_and_masses_of_nobody():
    """Where no azimuth is defined; a last group that is filled up."""
    keys = np.zeros((4, 16))
    keys[2, :] = [1.0, -1.0] * 8
    keys[3, :13] = 0.5
    problem = Transpose(keys, np.ascontiguousarray(2.0 * keys[:3, :13]), seed=3)
    assert max(problem.errors(*computed(problem, degree_for(problem, 1e-10)))) < 1e-10


def test_no_degree_where_rounding_or_the_table_ends():
    keys = sorted_tokens(300, 3, seed=2)
    problems = [Transpose(keys, beta * keys[:3], seed=1) for beta in (0.0, 0.5, 2.0, 6.0, 40.0, 1000.0)]
    degrees = [degree_for(problem, 1e-7) for problem in problems]
    assert degrees == [*sorted(degrees[:4]), -1, -1] and degrees[0] == 0 and degrees[3] <= MOST_DEGREE
    assert degree_for(problems[3], 1e-14) == -1
    assert degree_for(Transpose(keys[:, :8], -8.0 * keys[:3, :8], seed=1), 1e-10) == -1  # they look away
    assert harmonics_adjoint_cost(100, 8) < harmonics_adjoint_cost(100, 9) < harmonics_adjoint_cost(200, 9)


def test_the_order_of_pieces_changes_nothing(monkeypatch):
    keys = sorted_tokens(800, 3, seed=10)
    problem = Transpose(keys, np.ascontiguousarray(2.0 * keys[:3]), seed=2)
    monkeypatch.setattr(harmonics_adjoint, "_PIECE", 256)
    one = computed(problem, 14)

    def in_turn(work, n, quantum=1, **options):
        for start in reversed(range(0, n, quantum)):
            work(start, min(start + quantum, n))

    monkeypatch.setattr(harmonics_adjoint, "over_rows", in_turn)
    again = computed(problem, 14)
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
