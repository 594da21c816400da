"""How long the next step is."""

import math

import pytest

from metastable.solve.controller import FASTEST, LEAST_MEMORY, SAFETY, SLOWEST, Controller

CONTROL = Controller(8, recent=0.7 / 8, before=0.4 / 8)


def test_an_error_as_large_as_allowed_keeps_the_step():
    assert CONTROL.growth(1.0, 1.0, False) == SAFETY
    assert CONTROL.growth(2.0**-8, 1.0, False) == pytest.approx(SAFETY * 2**0.7)
    assert CONTROL.growth(2.0**-8, 2.0**-8, False) == pytest.approx(SAFETY * 2**0.3)


def test_growth_is_bounded_and_does_not_follow_a_rejection():
    assert CONTROL.growth(0.0, 1.0, False) == FASTEST
    assert CONTROL.growth(0.0, 1.0, True) == 1.0
    assert CONTROL.growth(1.0, 1e-30, False) == SLOWEST


def test_a_rejected_step_is_shortened_by_its_order():
    assert CONTROL.after_rejection(2.0**8) == pytest.approx(SAFETY / 2)
    assert Controller(5, 0.14, 0.08).after_rejection(2.0**5) == pytest.approx(SAFETY / 2)
    assert CONTROL.after_rejection(1e100) == SLOWEST
    assert CONTROL.after_rejection(math.inf) == 0.1


def test_small_errors_are_forgotten():
    assert CONTROL.remembered(0.0) == LEAST_MEMORY and CONTROL.remembered(0.5) == 0.5
