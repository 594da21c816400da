"""The diamond angle orders directions as the angle does."""

from __future__ import annotations

import math

import numpy as np

from metastable.attention.diamond import diamond


def test_order_of_the_angles():
    angle = np.linspace(-3, 3, 101)
    order = [diamond(math.cos(a), math.sin(a)) for a in angle % (2 * math.pi)]
    assert np.array_equal(np.argsort(order), np.argsort(angle % (2 * math.pi)))


def test_quarters_and_lengths():
    quarters = [diamond(x, y) for x, y in ((1.0, 0.0), (0.0, 1.0), (-1.0, 0.0), (0.0, -1.0))]
    assert quarters == [0.0, 1.0, 2.0, 3.0]
    assert diamond(1e-200, 1e-200) == diamond(1e200, 1e200) == diamond(1.0, 1.0) == 0.5
    assert 0.0 <= diamond(0.0, 0.0) <= 4.0
