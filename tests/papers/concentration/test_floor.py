import math

import numpy as np
import pytest

from metastable.papers import Outcome, Setting, claims_of
from metastable.papers.concentration.floor import (
    error_figure,
    exponent,
    floor_figure,
    theorem,
)
from small_claims import small_verdict


def test_the_theorem_s_power_of_beta():
    assert theorem(np.array([math.e - 1])) == pytest.approx(1 / math.sqrt(math.e - 1))


def test_the_exponent_of_a_power():
    betas = np.array([10.0, 30.0, 70.0])
    assert exponent(betas, 3 * betas**-1.5) == pytest.approx(-1.5)


def test_mass_that_changes_sides_is_the_predicted_one_with_every_factor():
    verdict = small_verdict("floor-mass")
    assert [row["predicted"] for row in verdict.table] == pytest.approx([1 / (2 * math.pi), 3 / (16 * math.pi)])
    for row in verdict.table:
        assert row["its limit"] == pytest.approx(row["predicted"], rel=0.03)
    without = {rival.name: rival.measured for rival in verdict.rivals}
    assert without["not a"] == pytest.approx(0.5, rel=0.03) and without["not l1"] == pytest.approx(1.5, rel=0.03)


def test_words_name_the_range_of_the_run_and_the_figure_shows_no_other():
    (claim,) = claims_of("concentration", ["floor-exponent"])
    assert "25, 45 and 80" in claim.words(Setting(quick=True))[1]
    assert "25, 50, 100, 200 and 400" in claim.words(Setting())[1]
    beta = np.array([25.0, 45.0, 80.0])
    points, law, bound = floor_figure(Outcome(-0.5, curves={"beta": beta, "floor": 0.6 / np.sqrt(beta)})).series
    assert points.x.tolist() == beta.tolist() and len(law.x) == len(bound.x) > 100
    assert law.y == pytest.approx(0.6 / np.sqrt(law.x)) and law.colour == points.colour


def test_each_time_and_its_slope_share_a_colour():
    beta = np.array([50.0, 100.0])
    series = error_figure(Outcome(-1.0, curves={"beta": beta, "t = 1": 1 / beta, "t = 2": 3 / beta})).series
    assert [one.colour for one in series[:4]] == [0, 0, 1, 1]
    assert series[3].y == pytest.approx(3 / series[3].x)
