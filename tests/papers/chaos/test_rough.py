import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.papers.chaos.rough import OBSERVERS, TIME, distances, expected_square, limit_constant
from metastable.papers.chaos.sampling import uniform_contexts
from small_claims import small_verdict


def test_the_way_to_the_nearest_token_is_the_flow_of_hardmax():
    n, d = 40, 3
    found = distances(n, d, 1, seed=4, other=5)
    context, x = uniform_contexts(1, n, d, 4)[0], ms.sphere.uniform(OBSERVERS, d, seed=5)
    flow = ms.Hardmax(ms.AttentionWeights(V=np.eye(d), B=np.eye(d)))
    rho = ms.Measure(torch.cat([context, x]), [1.0] * n + [0.0] * OBSERVERS)
    end = ms.solve(flow, rho, t=TIME, method="rk4", step=0.01).end.points
    assert torch.allclose(end[:n], context, atol=1e-9)
    assert float((end[n:] - x).square().sum(1).mean()) == pytest.approx(float(found[0]), rel=1e-6)


def test_the_constant_on_the_circle():
    """The nearest of n points is exponential: E angle^2 = 2 (pi/n)^2."""
    assert limit_constant(2) == pytest.approx((1 - math.exp(-TIME)) * math.sqrt(2) * math.pi)


@pytest.mark.parametrize("d", [2, 4, 6])
def test_expected_squares_are_those_of_samples_and_tend_to_the_constant(d):
    """400 contexts of 50 tokens, seed 1, by 4 standard errors; a hundred thousand tokens by their limit."""
    found = distances(50, d, 400, 1, 2)
    assert abs(found.mean() - expected_square(50, d)) < 4 * found.std() / math.sqrt(400)
    scaled = math.sqrt(expected_square(10**5, d)) * 10 ** (5 / (d - 1))
    assert scaled == pytest.approx(limit_constant(d), rel=0.02)


def test_the_table_holds_every_dimension():
    rows = small_verdict("rough-context-rate").table
    assert [row["d"] for row in rows] == [2, 4, 5, 6]
    assert all(row["n^(1/(d-1)) rms"] == pytest.approx(row["its limit"], rel=0.1) for row in rows)
