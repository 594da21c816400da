"""Where lines have to be closer: on a bump of known width and known mean."""

import numpy as np
import pytest

from metastable.meanfield import Skewed
from metastable.meanfield.bundle import Bundle
from metastable.meanfield.crowding import MOST, MOST_PILOTS, crowded, crowding, factor, needed
from metastable.meanfield.longitudes import Crowded, Grading
from metastable.meanfield.panel_run import FlowMap, Frame


def poisson(phi, delta, at=1.0):
    """sinh(delta)/(cosh(delta) - cos(phi - at)) = 1 + 2 sum_k e^{-delta k} cos k(phi - at), of mean one."""
    return np.sinh(delta) / (np.cosh(delta) - np.cos(phi - at))


@pytest.mark.parametrize("delta", [0.1, 0.2, 0.4])
@pytest.mark.parametrize("eps", [1e-6, 1e-10])
def test_what_is_wanted_is_what_the_modes_ask_for(delta, eps):
    """n places err by 2 e^{-delta n}: n = log(2/eps)/delta."""
    places = 96
    phi = 2 * np.pi * np.arange(places) / places
    exact = np.log(2 / eps) / delta / places
    found = needed(poisson(phi, delta)[None], eps)
    assert 0.9 * exact < found.max() < 1.3 * exact
    assert abs(phi[np.argmax(found)] - 1.0) < 5 * phi[1]


def test_lines_crowd_at_a_bump_and_nowhere_else():
    """A bump .02 wide, of mass .01: its mean over few lines, crowded twice, against as many equispaced ones."""
    grading, lines, eps = Grading(), 48, 1e-9
    for _ in range(3):
        phi, _ = grading.longitudes(lines)
        wanted = needed(_per_line(grading, lines)[None], eps)
        grading = Crowded(grading, factor(wanted))
        lines = round(lines * float(np.mean(grading.factor)))
    assert lines < 320
    phi, share = grading.longitudes(lines)
    assert share @ _bump(phi) == pytest.approx(1.01, abs=10 * eps)
    assert abs(_bump(Grading().longitudes(lines)[0]).mean() - 1.01) > 1e3 * eps
    assert np.diff(phi).max() > 10 * np.diff(phi).min()


def _bump(phi):
    return 1 + 0.01 * poisson(phi, 0.02)


def _per_line(grading, lines):
    phi, share = grading.longitudes(lines)
    return lines * share * _bump(phi)


def test_nothing_is_wanted_where_all_is_smooth():
    phi = 2 * np.pi * np.arange(64) / 64
    smooth = np.exp(np.cos(phi))[None]
    assert needed(smooth, 1e-12).max() < 1 and factor(needed(smooth, 1e-12)) == pytest.approx(np.ones(64))
    noise = 1e-9 * np.random.default_rng(0).uniform(-1, 1, (1, 64))
    assert needed(noise, 1e-12).max() > 1, "noise looks like features between the places"
    assert needed(noise, 1e-12, noise=2e-9).max() == 0


def test_factors_are_smooth_and_bounded():
    wanted = np.zeros(100)
    wanted[50] = 40.0
    found = np.array(factor(wanted))
    assert found.min() > 1 - 1e-9 and 1.2 < found.max() < MOST
    assert abs(np.fft.rfft(np.log(found)))[-1] < 1e-6 * np.log(found).sum()


def test_a_bundle_that_has_not_moved_wants_no_lines():
    frame = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    bundle = Bundle.of(Skewed([1.0, 0.5, 0.2], 0.6), frame, 48)
    panels = bundle.panels()
    still = FlowMap(frames=[Frame(panels, bundle.start(panels))])
    assert crowding(bundle, still, 1e-11).max() <= 1


def test_pilots_come_to_an_end():
    """A pilot whose lines are close enough leaves the grading; one that finds a jump is asked three times."""
    frame, asked = np.eye(3), []

    def pilot(grading, accuracy, jump):
        asked.append(accuracy.mass)
        bundle = Bundle.of(Skewed([1.0, 0.5, 0.2], 0.6), frame, 48, grading)
        panels = bundle.panels()
        points = bundle.start(panels)
        if jump:
            points[panels.root // bundle.cells >= 20] = -points[panels.root // bundle.cells >= 20]
        return bundle, FlowMap(frames=[Frame(panels, points)])

    assert crowded(Grading(), lambda *a: pilot(*a, jump=False), 1e-9, 1e-7) == Grading() and len(asked) == 1
    found = crowded(Grading(), lambda *a: pilot(*a, jump=True), 1e-9, 1e-7)
    assert len(asked) == 1 + MOST_PILOTS and found.length > 2 * Grading().length
