"""The cost of a cyclic plan as a function of its shift: convex, with the slopes that it states."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastable.measure import Measure
from metastable.transport.shift import GEODESIC, ShiftCost, best_shift, shift_cost
from transport.clouds import both_quantiles, clouds


@settings(max_examples=40, deadline=None)
@given(clouds(d=2), st.sampled_from([1.0, 2.0]))
def test_shift_function_is_convex_and_slopes_are_its_derivative(pair: tuple[Measure, Measure], p: float) -> None:
    source, target = both_quantiles(*pair)
    cost = ShiftCost(GEODESIC, p)
    best, where = best_shift(source, target, cost)
    for shift in (-0.77, -0.31, 0.123, 0.456):
        value, left, right, free_left, free_right = shift_cost(source, target, shift, cost)
        assert best <= value + 1e-12 and left <= right + 1e-12
        step = free_right / 2
        assert shift_cost(source, target, shift + step, cost)[0] == pytest.approx(value + step * right, abs=1e-11)
        step = free_left / 2
        assert shift_cost(source, target, shift - step, cost)[0] == pytest.approx(value - step * left, abs=1e-11)
        assert value + (where - shift) * (right if where > shift else left) <= best + 1e-11
