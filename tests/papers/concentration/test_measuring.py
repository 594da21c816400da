"""The curves that the experiments draw are those of the mean field, before and after the departure."""

import math

import numpy as np
import pytest

from metastable import sphere
from metastable.meanfield import Uniform, reference_skew
from metastable.measure import Measure
from metastable.papers.concentration.departures import TERMINAL_W2
from metastable.papers.concentration.families import plain, sheared
from metastable.papers.concentration.measuring import distance_curve, distances, run
from metastable.papers.reading import first_crossing


def test_curve_meets_the_reference_values():
    curve = distance_curve(sheared(0.5), 64.0, reference_skew(), [0.0, 1.0, 2.0, 4.0], 1e-5)
    assert curve[1:] == pytest.approx([0.6062913, 0.3951482, 0.1749828], abs=5e-6)


def test_curve_leaves_when_the_mean_field_leaves():
    times = np.linspace(0, 9, 37)
    curve = distance_curve(sheared(0.5), 64.0, Uniform(2), times)
    least = int(np.argmin(curve))
    assert first_crossing(times[least:], curve[least:], TERMINAL_W2 / 2) == pytest.approx(8.15, abs=0.01)


def test_distances_start_at_the_distance_of_the_start():
    """From the uniform law W2^2 to the two ends of an axis is 2 - 4/pi; n equispaced tokens have it up to 1/n^2."""
    path = run(plain(), 4.0, sphere.equispaced(400), [0.0, 0.5])
    target = Measure(np.array([[1.0, 0.0], [-1.0, 0.0]]))
    start, later = distances(path, target)
    assert start == pytest.approx(math.sqrt(2 - 4 / math.pi), abs=1e-4) and later < start
