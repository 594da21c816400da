"""The circle: shift search against the linear program and POT, and the certificate of the chordal cost."""

import math

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastable import sphere
from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.transport import Bounds, Distance, wasserstein
from metastable.transport.arc import inflection
from metastable.transport.circle import convex_above, convex_below
from metastable.transport.pair import make_pair
from transport.clouds import cloud, clouds


@settings(max_examples=200, deadline=None)
@given(clouds(d=2), st.sampled_from([1, 1.5, 2, 3]))
def test_geodesic_is_the_linear_program(pair: tuple[Measure, Measure], p: float) -> None:
    a, b = pair
    found = wasserstein(a, b, p, "geodesic", method="circle")
    assert found.exact and found.method == "circle"
    assert found**p == pytest.approx(wasserstein(a, b, p, "geodesic", method="exact") ** p, abs=1e-12 * 4**p)


@settings(max_examples=300, deadline=None)
@given(clouds(d=2, max_n=60), st.sampled_from([1, 2, 3]))
def test_chordal_is_exact_when_it_says_so_and_bounded_when_not(pair: tuple[Measure, Measure], p: int) -> None:
    """max_pairs = 0 forbids the linear program, so the certificate stands alone."""
    a, b = pair
    found = wasserstein(a, b, p, method="circle", max_pairs=0)
    reference = wasserstein(a, b, p, method="exact")
    if isinstance(found, Distance):
        assert found.exact and found**p == pytest.approx(reference**p, abs=1e-11)
    else:
        assert found.lower - 1e-9 <= reference <= found.upper + 1e-9
    small = wasserstein(a, b, p, method="circle")
    assert isinstance(small, Distance) and small**p == pytest.approx(reference**p, abs=1e-11)


def test_two_poles_by_the_circle_solver() -> None:
    """R6 once more, without the two-atom method: displacements of exactly a quarter turn are still certified."""
    rho = sphere.equispaced(20_000)
    poles = sphere.from_angles([0.0, math.pi])
    found = wasserstein(rho, poles, method="circle", max_pairs=0)
    assert found.exact and found == pytest.approx(math.sqrt(2 - 4 / math.pi), abs=1e-7)


def test_rotation_of_any_measure() -> None:
    """W_p(a, R a) <= angle, with equality for uniform tokens only when the angle is below half a spacing."""
    n = 1000
    angle = 0.4 * 2 * math.pi / n
    rho, turned = sphere.equispaced(n), sphere.from_angles(2 * math.pi * (np.arange(n) + 0.9) / n)
    assert wasserstein(rho, turned, metric="geodesic") == pytest.approx(angle, rel=1e-9)
    assert wasserstein(rho, turned) == pytest.approx(2 * math.sin(angle / 2), rel=1e-9)


@pytest.mark.parametrize("p", [1, 2])
def test_agrees_with_pot_at_size(p: int) -> None:
    a, b = cloud(20_000, 2, "uniform", True, 1), cloud(15_000, 2, "arc", True, 2)
    pair = make_pair(a, b)
    turns = [np.mod(np.arctan2(z[:, 1], z[:, 0]) / (2 * math.pi), 1) for z in (pair.x, pair.y)]
    peer = ot.wasserstein_circle(turns[0], turns[1], pair.a, pair.b, p=p).item() ** (1 / p) * 2 * math.pi
    assert wasserstein(a, b, p, "geodesic") == pytest.approx(peer, rel=1e-6)


def test_large_uncertified_measures_are_bracketed_only_when_asked() -> None:
    """Beyond the linear program the default refuses; by name the answer is two bounds, which are not one number."""
    n = 6000
    a, b = sphere.equispaced(n), sphere.von_mises_fisher(n, [1.0, 0.0], 20.0, seed=1)
    with pytest.raises(InvalidInput, match=r"method='circle' \(bounds\)"):
        wasserstein(a, b)
    found = wasserstein(a, b, method="circle")
    assert isinstance(found, Bounds) and 0 < found.upper - found.lower < 1e-2
    with pytest.raises(InvalidInput, match="a bracket is not one number"):
        float(found)
    finer = wasserstein(a[::5], b, max_pairs=10**8)
    assert found.lower - math.pi * 5 / n <= finer <= found.upper + math.pi * 5 / n


@pytest.mark.parametrize("metric", ["chordal", "geodesic"])
@pytest.mark.parametrize("method", ["circle", "sliced", "exact", "auto"])
def test_coincident_points(metric: str, method: str) -> None:
    """All tokens of each measure at one place: the shift that is best lies at the end of its range."""
    for angle in (0.0, 1.0, 3.0, 4.9, 5.57):
        a = Measure(np.tile([[math.cos(angle), math.sin(angle)]], (7, 1)), np.arange(1.0, 8) / 28)
        for other in (angle, 0.3, 5.93):
            b = Measure(np.tile([[math.cos(other), math.sin(other)]], (5, 1)))
            apart = abs(math.remainder(angle - other, 2 * math.pi))
            expected = apart if metric == "geodesic" else 2 * math.sin(apart / 2)
            found = wasserstein(a, b, 2, metric, method=method, projections=4)
            if (method, metric) == ("sliced", "chordal"):
                assert found <= expected + 1e-12
            else:
                assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("p", [1 + 1e-15, 1.0001, 1.01, 1.1, 5.0, 10.0])
def test_any_exponent(p: float) -> None:
    a, b = cloud(30, 2, "uniform", True, 1), cloud(20, 2, "arc", True, 2)
    assert wasserstein(a, b, p) == pytest.approx(wasserstein(a, b, p, method="exact"), rel=1e-9)


@pytest.mark.parametrize("p", [1, 1.5, 2, 3])
def test_convex_functions_enclose_the_chordal_cost(p: float) -> None:
    t = np.linspace(0, math.pi, 4001)
    true = (2 * np.sin(t / 2)) ** p
    below = convex_below(p)
    low = np.where(t > below.cut, below.value + below.slope * (t - below.cut), true)
    assert (low <= true + 1e-13).all() and (np.diff(low, 2) >= -1e-13).all()
    assert low[-1] == pytest.approx(2**p)
    if p > 1:
        above = convex_above(p)
        high = np.where(t > above.cut, above.value + above.slope * (t - above.cut), true)
        assert (high >= true - 1e-13).all() and (np.diff(high, 2) >= -1e-13).all()
    assert inflection(2) == pytest.approx(math.pi / 2)
    assert math.degrees(convex_below(2).cut) == pytest.approx(46.44, abs=0.01)
