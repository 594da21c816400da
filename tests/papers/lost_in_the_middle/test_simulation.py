import numpy as np
import pytest

from metastable.papers import Setting
from metastable.papers.lost_in_the_middle.sampling import Measured
from metastable.papers.lost_in_the_middle.simulation import approach_error, case_tolerance, extrapolated
from small_claims import small_verdict


def test_extrapolation_takes_off_one_over_n():
    one = np.ones(2)
    few, many = (Measured(c * one, 0.1 * one, one, one, 0.0, 0.0) for c in (0.2 + 3 / 32, 0.2 + 3 / 64))
    deviation, error = extrapolated(few, many)
    assert deviation == pytest.approx(0.2) and error == pytest.approx(np.sqrt(0.05))


def test_more_samples_make_the_tolerances_smaller():
    for tolerance in (case_tolerance, approach_error):
        assert tolerance(Setting()) < tolerance(Setting(quick=True)) <= tolerance(Setting(small=True))


def test_the_u_is_drawn_with_error_bars_on_its_theory():
    figure = small_verdict("retrieval-closed-form").figure
    dots, line = figure.series[:2]
    assert dots.colour == line.colour and len(dots.error) == len(dots.x) and not len(line.error)
    assert np.abs(np.interp(dots.x, line.x, line.y) / dots.y - 1).max() < 0.2


def test_the_deviation_is_that_of_n_tokens():
    rows = small_verdict("retrieval-one-over-n").table
    assert [row["n"] for row in rows] == [16, 32, 64]
    assert all(0.4 < row["n * deviation"] < 1.0 for row in rows)
