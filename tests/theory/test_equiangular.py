import itertools
import math

import numpy as np
import pytest

from metastable.errors import InvalidInput
from metastable.theory.equiangular import (
    attention_on_others,
    late_rate,
    overlap,
    overlap_at_zero_beta,
    simplex_rates,
    speed,
    travel_time,
)


def test_times_of_the_equiangular_reduction():
    for beta, half, late in ((0, 1.748254, 5.186261), (1, 1.819935, 5.270284), (4, 3.431732, 6.953502)):
        assert travel_time(0.5, 32, beta) == pytest.approx(half, abs=1e-6)
        assert travel_time(0.999, 32, beta) == pytest.approx(late, abs=1e-6)
    assert travel_time(0.5, 32, 9) == pytest.approx(174.65224, abs=1e-4)
    assert travel_time(0.999, 32, 9) == pytest.approx(178.73093, abs=1e-4)


def test_equiangular_overlap():
    assert overlap(1.3, 10, 0.0) == pytest.approx(overlap_at_zero_beta(1.3, 10), abs=1e-12)
    for normalized in (True, False):
        g = overlap(0.7, 6, 1.5, start=0.1, normalized=normalized)
        h = 1e-5
        slope = (overlap(0.7 + h, 6, 1.5, 0.1, normalized) - overlap(0.7 - h, 6, 1.5, 0.1, normalized)) / (2 * h)
        assert slope == pytest.approx(speed(g, 6, 1.5, normalized), rel=1e-6)
        # near consensus 1 - g decays with the late rate; start there, or e^beta speed exhausts the digits
        t = 1.0 / late_rate(1.5, normalized)
        near = 1 - overlap(t, 6, 1.5, 1 - 1e-4, normalized)
        assert near == pytest.approx(1e-4 * math.exp(-1.0), rel=1e-3)
    assert overlap(0.0, 5, 1.0, start=0.2) == 0.2
    assert speed(-1 / 4, 5, 1.0) == pytest.approx(0, abs=1e-15)
    with pytest.raises(InvalidInput, match="overlaps in"):
        speed(-0.9, 5, 1.0)
    with pytest.raises(InvalidInput, match="n must be >= 2"):
        speed(0.1, 1, 1.0)


def test_cold_equiangular_tokens():
    assert speed(0.0, 32, 700.0) == pytest.approx(2 * math.exp(-700.0), rel=1e-12, abs=0)
    assert speed(0.0, 32, 1000.0) == 0.0  # 2 e^{-1000}: below the smallest number
    for call, word in (
        (lambda: travel_time(0.5, 32, 1000.0), "does not move"),
        (lambda: speed(0.9, 32, 1000.0, normalized=False), "got 900"),
        (lambda: late_rate(1000.0, normalized=False), "got 1000"),
        (lambda: speed(0.0, 32, math.nan), "beta must be finite"),
    ):
        with pytest.raises(InvalidInput, match=word):
            call()


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("n", "beta"), [(3, 1.0), (4, 0.0), (5, 2.0), (7, 0.5)])
def test_rates_at_the_simplex_are_those_of_the_linearised_overlaps(n, beta, normalized):
    """G_ij' = sum_k a_ik (G_kj - G_ik G_ij) + (i <-> j), by central differences at the simplex."""
    pairs = list(itertools.combinations(range(n), 2))

    def speeds(g):
        gram = np.eye(n)
        for (i, j), value in zip(pairs, g, strict=True):
            gram[i, j] = gram[j, i] = value
        kernel = np.exp(beta * gram)
        a = kernel / (kernel.sum(1, keepdims=True) if normalized else n)
        moved = a @ gram - (a * gram).sum(1)[:, None] * gram
        return np.array([(moved + moved.T)[pair] for pair in pairs])

    rest, h = np.full(len(pairs), -1 / (n - 1)), 1e-6
    columns = [(speeds(rest + h * e) - speeds(rest - h * e)) / (2 * h) for e in np.eye(len(pairs))]
    found = np.sort(np.linalg.eigvals(np.stack(columns, axis=1)).real)
    alike, sums, zero = simplex_rates(n, beta, normalized)
    exact = sorted([alike, *[sums] * (n - 1), *[zero] * (n * (n - 3) // 2)])
    assert found == pytest.approx(exact, abs=1e-7)


def test_the_rate_of_equal_overlaps_is_the_slope_of_their_speed():
    for n, beta, normalized in ((2, 1.0, True), (6, 3.0, True), (6, 3.0, False), (40, 0.5, True)):
        h = 1e-7
        slope = speed(-1 / (n - 1) + h, n, beta, normalized) / h
        assert slope == pytest.approx(simplex_rates(n, beta, normalized)[0], rel=1e-5)


def test_attention_on_others():
    for g, n, beta in ((0.0, 5, 2.0), (-0.2, 6, 1.0), (0.9, 1000, 3.0)):
        direct = (n - 1) * math.exp(beta * g) / (math.exp(beta) + (n - 1) * math.exp(beta * g))
        assert attention_on_others(g, n, beta) == pytest.approx(direct, rel=1e-12)
    # beta = c ln n: 1 below the critical c, 1/2 at it, 0 above
    for c, limit in ((1.9, 1.0), (2.0, 0.5), (2.1, 0.0)):
        assert attention_on_others(0.5, 2**50, c * math.log(2**50)) == pytest.approx(limit, abs=0.2)
    assert attention_on_others(0.0, 2, 1e4) == 0.0
    with pytest.raises(InvalidInput, match="overlaps in"):
        attention_on_others(-0.5, 5, 1.0)
