"""The curves that the experiments draw are those of the mean field, before and after the departure."""

import math

import numpy as np
import pytest

from metastable import sphere
from metastable.meanfield import Uniform, reference_skew
from metastable.measure import Measure
from metastable.papers.concentration.departures import TERMINAL_W2
from metastable.papers.concentration.families import plain, sheared
from metastable.papers.concentration.measuring import (
    distance_curve,
    distances,
    farthest,
    fine,
    first_crossing,
    listed,
    run,
    slope,
)


def test_curve_meets_the_reference_values():
    curve = distance_curve(sheared(0.5), 64.0, reference_skew(), [0.0, 1.0, 2.0, 4.0], 1e-5)
    assert curve[1:] == pytest.approx([0.6062913, 0.3951482, 0.1749828], abs=5e-6)


def test_curve_leaves_when_the_mean_field_leaves():
    times = np.linspace(0, 9, 37)
    curve = distance_curve(sheared(0.5), 64.0, Uniform(2), times)
    least = int(np.argmin(curve))
    assert first_crossing(times[least:], curve[least:], TERMINAL_W2 / 2) == pytest.approx(8.15, abs=0.01)


def test_crossings_are_interpolated():
    times, values = np.arange(4.0), np.array([0.0, 1.0, 3.0, 2.0])
    assert first_crossing(times, values, 2.0) == pytest.approx(1.5)
    assert np.isnan(first_crossing(times, values, 9.0))
    assert first_crossing(times, -values, -2.0, upwards=False) == pytest.approx(1.5)
    assert first_crossing(times, values, 0.0) == 0.0


def test_distances_start_at_the_distance_of_the_start():
    """From the uniform law W2^2 to the two ends of an axis is 2 - 4/pi; n equispaced tokens have it up to 1/n^2."""
    path = run(plain(), 4.0, sphere.equispaced(400), [0.0, 0.5])
    target = Measure(np.array([[1.0, 0.0], [-1.0, 0.0]]))
    start, later = distances(path, target)
    assert start == pytest.approx(math.sqrt(2 - 4 / math.pi), abs=1e-4) and later < start


def test_slope_of_a_line():
    assert slope([0.0, 1.0, 3.0], [1.0, -1.0, -5.0]) == pytest.approx(-2.0, abs=1e-12)


def test_one_number_for_several_cases_is_the_worst():
    assert farthest([0.9, 1.05, 0.98], 1.0) == 0.9 and farthest(np.array([-1.2, -0.9]), -1.0) == -1.2


def test_theory_is_drawn_between_the_first_and_the_last_point():
    assert fine([25.0, 100.0])[[0, -1]] == pytest.approx([25.0, 100.0])
    assert np.ptp(np.diff(np.log(fine([25.0, 100.0])))) < 1e-12 and np.ptp(np.diff(fine([0.0, 4.0]))) < 1e-12


def test_values_in_words():
    assert listed([4.0]) == "4" and listed([4.0, 8.5]) == "4 and 8.5" and listed([1, 2, 3]) == "1, 2 and 3"
