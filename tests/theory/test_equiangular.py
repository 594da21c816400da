import math

import pytest

from metastable.errors import InvalidInput
from metastable.theory.equiangular import late_rate, overlap, overlap_at_zero_beta, speed, travel_time


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
