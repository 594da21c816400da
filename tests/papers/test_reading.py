"""Slopes, crossings and words of the experiments."""

import numpy as np
import pytest

from metastable.drawing import Series
from metastable.papers.reading import beside, farthest, fine, first_crossing, listed, slope, spanned


def test_crossings_are_interpolated():
    times, values = np.arange(4.0), np.array([0.0, 1.0, 3.0, 2.0])
    assert first_crossing(times, values, 2.0) == pytest.approx(1.5)
    assert np.isnan(first_crossing(times, values, 9.0))
    assert first_crossing(times, -values, -2.0, upwards=False) == pytest.approx(1.5)
    assert first_crossing(times, values, 0.0) == 0.0


def test_slope_of_a_line():
    assert slope([0.0, 1.0, 3.0], [1.0, -1.0, -5.0]) == pytest.approx(-2.0, abs=1e-12)


def test_one_number_for_several_cases_is_the_worst():
    assert farthest([0.9, 1.05, 0.98], 1.0) == 0.9 and farthest(np.array([-1.2, -0.9]), -1.0) == -1.2
    assert np.isnan(farthest([0.5, np.nan, 1.0], 1.0))


def test_theory_is_drawn_between_the_first_and_the_last_point():
    assert fine([25.0, 100.0])[[0, -1]] == pytest.approx([25.0, 100.0])
    assert np.ptp(np.diff(np.log(fine([25.0, 100.0])))) < 1e-12 and np.ptp(np.diff(fine([0.0, 4.0]))) < 1e-12


def test_values_in_words():
    assert listed([4.0]) == "4" and listed([4.0, 8.5]) == "4 and 8.5" and listed([1, 2, 3]) == "1, 2 and 3"
    assert spanned([25.0, 50.0, 100.0]) == "from 25 to 100"


def test_a_prediction_stands_beside_its_curve():
    a, b, c, d = (Series(np.zeros(1), np.zeros(1), name) for name in "abcd")
    assert [one.label for one in beside([a, b], [c, d])] == ["a", "c", "b", "d"]
