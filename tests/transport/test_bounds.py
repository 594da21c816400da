"""Rigorous bounds: they enclose the exact distance."""

from hypothesis import given, settings

from metastable.measure import Measure
from metastable.transport import bounds, wasserstein
from transport.clouds import METRIC, P, clouds


@settings(max_examples=60, deadline=None)
@given(clouds(), METRIC, P)
def test_bounds_enclose(pair: tuple[Measure, Measure], metric: str, p: int) -> None:
    a, b = pair
    lower, upper = bounds(a, b, p, metric)
    exact = wasserstein(a, b, p, metric)
    slack = 1e-7 if exact < 1e-3 else 1e-12
    assert lower - slack <= exact <= upper + slack
