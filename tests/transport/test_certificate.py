"""Potentials that prove a cyclic plan optimal for the chordal cost: where they do, and where they must not."""

import numpy as np
import pytest

from metastable import sphere
from metastable.measure import Measure
from metastable.transport import wasserstein
from metastable.transport.circle import convex_above, convex_below
from metastable.transport.shift import ShiftCost, best_shift, shift_cost
from transport.clouds import both_quantiles


@pytest.mark.parametrize("weighted", [False, True])
def test_certificate_reaches_beyond_the_convex_minorant(weighted: bool) -> None:
    """Tokens travel more than 46 but less than 90 degrees: only the potentials prove the plan, and they do."""
    n = 800
    rng = np.random.default_rng(2)
    a = Measure(sphere.equispaced(n), rng.random(n) + 0.5 if weighted else None)
    a = Measure(a.points, a.mass)
    b = sphere.von_mises_fisher(n, [1.0, 0.0], 1.0, seed=3)
    found = wasserstein(a, b, method="circle", max_pairs=0)
    lower, _ = best_shift(*both_quantiles(a, Measure(b)), convex_below(2))
    assert found**2 - lower > 1e-4
    assert found.exact and found == pytest.approx(wasserstein(a, b, method="exact"), abs=1e-12)


def test_certificate_refuses_a_cyclic_plan_that_is_not_optimal() -> None:
    """A tight cluster against uniform tokens: the chordal optimum reverses the order beyond a quarter turn."""
    a, b = Measure(sphere.equispaced(300)), Measure(sphere.von_mises_fisher(300, [1.0, 0.0], 20.0, seed=1))
    _, shift = best_shift(*both_quantiles(a, b), convex_above(2))
    exact = wasserstein(a, b, method="exact")
    assert shift_cost(*both_quantiles(a, b), shift, ShiftCost(2, 2))[0] > exact**2 + 0.01
    found = wasserstein(a, b, method="circle")
    assert found.exact and found.method == "exact" and found == pytest.approx(exact, abs=1e-12)
