"""Panels of labels: exact on polynomials."""

import numpy as np
import pytest

from metastable.meanfield import reference_skew
from metastable.meanfield.circle import circle_law
from metastable.meanfield.panels import Panels, halved_values, joined, siblings, tails, without_halves

LAW = circle_law(reference_skew())


def smooth(theta):
    return theta + 0.3 * np.sin(2 * theta) + 0.1 * np.cos(theta)


def test_halving_and_joining_follow_a_smooth_map():
    panels = Panels.of(LAW)
    values = smooth(panels.start(LAW))
    chosen = np.arange(len(panels)) % 3 == 0
    fine = panels.halved(chosen)
    assert halved_values(values, chosen) == pytest.approx(smooth(fine.start(LAW)), abs=1e-13)
    first = siblings(fine)
    assert len(first) == chosen.sum()
    whole, error = joined(smooth(fine.start(LAW)), first)
    assert whole == pytest.approx(values[chosen], abs=1e-13)
    assert error.max() < 1e-13
    back = without_halves(fine, first)
    assert np.array_equal(back.left, panels.left) and np.array_equal(back.level, panels.level)
    assert tails(values).max() < 1e-13


def test_panels_are_united_and_read_at_finer_nodes():
    panels = Panels.of(LAW)
    a = panels.halved(np.arange(len(panels)) < 5)
    b = panels.halved(np.arange(len(panels)) < 2)
    b = b.halved(np.arange(len(b)) == 0)
    both = a.united(b)
    assert len(both) == len(panels) + 6
    for part in (a, b):
        assert part.read(smooth(part.start(LAW)), both) == pytest.approx(smooth(both.start(LAW)), abs=1e-13)
    assert both.mass(LAW).sum() == pytest.approx(1, abs=1e-14)
    assert (both.mass(LAW) * np.cos(both.start(LAW))).sum() == pytest.approx(0.25 * np.cos(1), abs=1e-14)
