"""The curves that the experiments draw are those of the mean field, before and after the departure."""

import numpy as np
import pytest

from metastable.meanfield import Uniform, reference_skew
from metastable.papers.concentration.families import distance_curve, sheared
from metastable.papers.concentration.terminal import TERMINAL_W2, first_crossing


def test_curve_meets_the_reference_values():
    curve = distance_curve(sheared(0.5), 64.0, reference_skew(), [0.0, 1.0, 2.0, 4.0], 1e-5)
    assert curve[1:] == pytest.approx([0.6062913, 0.3951482, 0.1749828], abs=5e-6)


def test_curve_leaves_when_the_mean_field_leaves():
    times = np.linspace(0, 9, 37)
    curve = distance_curve(sheared(0.5), 64.0, Uniform(2), times)
    least = int(np.argmin(curve))
    assert first_crossing(times[least:], curve[least:], TERMINAL_W2 / 2) == pytest.approx(8.15, abs=0.01)
