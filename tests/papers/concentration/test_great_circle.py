import numpy as np
import pytest

from metastable import sphere
from metastable.papers import Setting, claims_of
from metastable.papers.concentration.great_circle import (
    LUMPING_LEVEL,
    LUMPING_MODES,
    _energy,
    _power,
    great_circle_experiment,
    great_circle_figure,
    linear_lumping_times,
)
from metastable.theory import fastest_mode


def test_the_closed_form_is_drawn_as_a_function():
    points, line = great_circle_figure(great_circle_experiment(Setting(small=True))).series
    assert len(line.x) > len(points.x) and points.colour == line.colour


def test_the_power_of_modes_is_that_of_their_sums():
    theta = sphere.angles(sphere.uniform(50, 2, seed=3)).numpy()
    direct = np.abs(np.exp(1j * np.outer(LUMPING_MODES, theta)).mean(1)) ** 2
    assert _power(theta) == pytest.approx(direct, abs=1e-12)


def test_iid_tokens_start_at_the_energy_of_the_uniform_law_on_average():
    starts = [_energy(_power(sphere.angles(sphere.uniform(400, 2, seed=s)).numpy()), 400) for s in range(200)]
    assert np.mean(starts) == pytest.approx(1.0, abs=4 * np.std(starts) / np.sqrt(200))


def test_one_mode_reaches_the_level_when_its_exponential_does():
    k, rate = fastest_mode(60.0)
    power = np.full((1, len(LUMPING_MODES)), 0.0)
    power[0, k - 1] = 1e-4
    share = (_energy(power, 10**12)[0] - 1) / 1e-4
    expected = np.log((LUMPING_LEVEL - 1) / (share * 1e-4)) / (2 * rate)
    assert linear_lumping_times(power, 10**12)[0] == pytest.approx(expected, abs=2e-3)


def test_words_name_the_numbers_of_tokens_of_the_run():
    (claim,) = claims_of("concentration", ["great-circle-clusters"])
    assert "(n = 200, 600 and 1800)" in claim.words(Setting(quick=True))[0]
    assert "(n = 400, 1600 and 6400)" in claim.words()[0]
