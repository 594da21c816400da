import numpy as np
import pytest
from scipy import special
from scipy.integrate import quad

from metastable.meanfield.longitudes import Crowded, Grading


@pytest.mark.parametrize("grading", [Grading(), Grading(0.7, 0.1), Grading(0.7, 0.003)])
def test_the_rule_integrates_what_is_smooth_on_its_lines(grading):
    """cos^2 phi, and a bump as wide as lines are dense: 1/(1 + sin^2(phi)/w^2) has the mean 1/sqrt(1 + 1/w^2)."""
    phi, share = grading.longitudes(512)
    assert share.sum() == pytest.approx(1, abs=1e-14)
    assert share @ np.cos(phi) ** 2 == pytest.approx(0.5, abs=1e-12)
    width = 2 * grading.width
    bump = 1 / (1 + (np.sin(phi) / width) ** 2)
    assert share @ bump == pytest.approx(1 / np.sqrt(1 + width**-2), abs=1e-11)


def test_few_lines_are_enough_at_every_scale():
    """A tip |phi|^3, as lines that leave the source make one: (w^2 + sin^2 phi)^{3/2}, 96 lines against 4096."""
    grading, tip = Grading(0.7, 0.003), 0.01
    few, many = (
        float(share @ (tip**2 + np.sin(phi) ** 2) ** 1.5)
        for phi, share in (grading.longitudes(96), grading.longitudes(4096))
    )
    assert few == pytest.approx(many, abs=1e-12)


@pytest.mark.parametrize("width", [1.0, 0.05, 2e-3])
def test_the_arc_is_the_integral_of_the_density(width):
    grading, at = Grading(0.5, width), np.array([0.3, 3.0, 6.0])
    corners = [0.0, width, 10 * width, np.pi - 10 * width, np.pi, np.pi + 10 * width]
    exact = [quad(grading.density, 0, x, points=corners, limit=400, epsabs=1e-12)[0] for x in at]
    assert grading.arc(at) == pytest.approx(exact, rel=1e-11)


def test_lines_are_nested():
    """Every second line of 96 is every third of 144, so that two bundles can be compared on them."""
    grading = Grading(0.7, 0.01)
    assert np.allclose(grading.longitudes(96)[0][::2], grading.longitudes(144)[0][::3], atol=1e-13)


def test_equispaced_without_grading():
    assert np.allclose(Grading().longitudes(12)[0], 2 * np.pi * np.arange(12) / 12, atol=1e-13)


BUMP = tuple((1 + 2 * np.exp(10 * (np.cos(2 * np.pi * (np.arange(64) / 64 - 0.3)) - 1))).tolist())


@pytest.mark.parametrize("base", [Grading(), Grading(0.5, 0.01), Crowded(Grading(0.5, 0.01), BUMP[::-1])])
def test_crowded_lines_are_a_rule_as_well(base):
    """Lines are nested, closer by the factor, and integrate e^{cos phi}, of mean I_0(1)."""
    crowded = Crowded(base, BUMP)
    phi, share = crowded.longitudes(384)
    assert np.all(np.diff(phi) > 0) and share.sum() == pytest.approx(1, abs=1e-14)
    assert share @ np.exp(np.cos(phi)) == pytest.approx(special.iv(0, 1.0), abs=1e-12)
    assert np.allclose(phi[::3], crowded.longitudes(256)[0][::2], atol=1e-13)
    s = np.array([0.1, 0.5, 0.9]) * crowded.length
    step = 1e-5
    assert (crowded.at(s + step)[0] - crowded.at(s - step)[0]) / (2 * step) == pytest.approx(
        crowded.at(s)[1], rel=1e-6
    )
    assert crowded.length == pytest.approx(base.length * np.mean(BUMP))
