import numpy as np
import pytest

from metastable.papers import Outcome, Setting, claims_of
from metastable.papers.concentration.plateau import (
    COLLAPSE_LAWS,
    symmetric_floor_figure,
)
from metastable.sphere import from_angles
from small_claims import small_verdict


def test_the_laws_have_the_symmetries_they_are_named_after():
    theta = np.linspace(0, 2 * np.pi, 41)
    here, opposite, mirrored = from_angles(theta), from_angles(theta + np.pi), from_angles(-theta)

    def same(name, image):
        law = COLLAPSE_LAWS[name]
        return np.allclose(law(here), law(image))

    assert same("symmetric", opposite) and not same("mirrored", opposite) and not same("skewed", opposite)
    assert same("mirrored", mirrored) and not same("skewed", mirrored)


def test_a_law_that_has_left_and_come_to_rest_is_no_plateau():
    """G(0.5) rests at the top of V after its departure: late W2 is constant there, too, but not at its floor."""
    verdict = small_verdict("plateau")
    _, sheared, _ = verdict.figure.series
    late = sheared.y[sheared.x >= 15]
    assert late.max() / late.min() < 1.05
    assert {rival.name: rival.measured for rival in verdict.rivals}["for any V: G(0.5)"] > 2


def test_words_name_the_time_until_which_it_was_watched():
    (claim,) = claims_of("concentration", ["plateau"])
    assert "until t = 60)" in claim.words(Setting(quick=True))[0] and "until t = 200)" in claim.words()[0]


def test_curves_are_scaled_by_beta():
    curves = {"beta": np.array([2.0, 4.0]), "floor": np.array([0.5, 0.25])}
    for beta, level in ((2, 0.5), (4, 0.25)):
        curves |= {f"t {beta}": np.array([0.0, 1.0]), f"W2 {beta}": np.array([1.0, level])}
    *scaled, floor = symmetric_floor_figure(Outcome(-1.0, curves=curves)).series
    assert [one.y.tolist() for one in scaled] == [[2.0, 1.0], [4.0, 1.0]] and floor.y == pytest.approx([1.0, 1.0])
