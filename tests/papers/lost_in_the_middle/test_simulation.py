import numpy as np
import pytest

from metastable.papers.lost_in_the_middle.sampling import Measured
from metastable.papers.lost_in_the_middle.simulation import extrapolated, rms_outcome
from small_claims import small_verdict


def test_extrapolation_takes_off_one_over_n_and_tells_what_is_left():
    """Deviations 0.2 + 3/n + 40/n^2: of the last -40/(2 32^2) is left, and four times that with half the tokens."""
    one = np.ones(2)
    deviations = [0.2 + 3 / n + 40 / n**2 for n in (16, 32, 64)]
    limit = extrapolated(*(Measured(value * one, 0.1 * one, one, one, 0.0, 0.0) for value in deviations))
    assert limit.left == pytest.approx(-3 * 40 / 2048) and limit.deviation == pytest.approx(0.2 - 40 / 2048)
    assert limit.error == pytest.approx(np.sqrt(0.05))


def test_what_is_expected_of_an_rms():
    """Noise and what is left, by seven places and three cases of noise alone, seed 2: the rms is theirs."""
    random = np.random.default_rng(2)
    one = np.ones(7)
    cases = [
        [Measured(0.02 * random.standard_normal(7), 0.02 * one, one, one, 0.0, 0.0) for _ in range(3)]
        for _ in range(30)
    ]
    outcome = rms_outcome([extrapolated(*case) for case in cases], {})
    assert outcome.measured <= outcome.systematic < 2.2 * outcome.measured
    assert outcome.uncertainty == pytest.approx(0.02 * np.sqrt(5) / np.sqrt(2 * 210))


def test_the_u_is_drawn_with_error_bars_on_its_theory():
    figure = small_verdict("retrieval-closed-form").figure
    dots, line = figure.series[:2]
    assert dots.colour == line.colour and len(dots.error) == len(dots.x) and not len(line.error)
    assert np.abs(np.interp(dots.x, line.x, line.y) / dots.y - 1).max() < 0.2


def test_the_deviation_is_that_of_n_tokens():
    rows = small_verdict("retrieval-one-over-n").table
    assert [row["n"] for row in rows] == [8, 16, 32, 64]
    assert all(1.2 < row["n * deviation"] < 1.9 for row in rows)
