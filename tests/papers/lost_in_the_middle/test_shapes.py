import math

import numpy as np
import pytest

from metastable.papers.lost_in_the_middle.shapes import as_predicted, bend, falls, wells
from small_claims import small_verdict


def test_wells_are_interior_minima():
    x = np.linspace(0, 1, 101)
    assert wells((x - 0.3) ** 2) == 1 and wells(x) == 0 and wells(np.cos(15 * x)) == 2
    assert falls(-x) and not falls((x - 0.9) ** 2)
    assert as_predicted((x - 0.3) ** 2, True) and as_predicted(-x, False) and not as_predicted(x, False)


def test_the_profile_bends_down_for_steep_slopes():
    assert bend(1.0, 0.02) > 0 > bend(2.0, 0.02)
    assert abs(bend(math.log(4), 0.001)) < 0.01


def test_lowest_places_are_the_published_ones():
    """K3."""
    lowest = {row["t"]: row["lowest at s"] for row in small_verdict("lost-in-the-middle").table}
    for t, place in ((0.5, 0.1251), (1.0, 0.2592), (1.5, 0.4182), (2.0, 0.6329), (2.5, 1.0)):
        assert lowest[t] == pytest.approx(place, abs=3e-4)


def test_the_two_wells_are_equally_deep():
    low, high = small_verdict("double-well").table
    assert low["value"] == pytest.approx(high["value"], abs=1e-5) and low["well at s"] < 0.5 < high["well at s"]
