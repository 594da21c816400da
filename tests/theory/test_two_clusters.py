import math

import numpy as np
import pytest
from scipy import integrate

import metastable as ms
from metastable.errors import InvalidInput
from metastable.theory import closing_speed, equiangular, merging_time
from small_runs import identity


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("beta", "masses"), [(0.0, (0.5, 0.5)), (3.0, (0.7, 0.3)), (9.0, (0.2, 0.8))])
def test_two_atoms_come_closer_at_that_speed(beta, masses, normalized):
    flow = (ms.SelfAttention if normalized else ms.UnnormalizedAttention)(identity(2), beta)
    for angle in (0.3, 1.2, 2.9):
        points = ms.sphere.from_angles([0.0, angle])
        velocity = flow.velocity(0.0, points, np.array(masses))
        turning = points[:, 0] * velocity[:, 1] - points[:, 1] * velocity[:, 0]
        expected = float(turning[0] - turning[1])
        assert closing_speed(angle, beta, *masses, normalized=normalized) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("normalized", [True, False])
def test_times_are_those_of_the_equation(normalized):
    beta, masses = 6.0, (0.1, 0.25)
    solved = integrate.solve_ivp(
        lambda t, a: [-closing_speed(abs(a[0]), beta, *masses, normalized=normalized)],
        (0, 30), [1.4], rtol=1e-11, atol=1e-13, events=lambda t, a: a[0] - 0.2,
    )  # fmt: skip
    found = merging_time(1.4, 0.2, beta, *masses, normalized=normalized)
    assert found == pytest.approx(solved.t_events[0][0], rel=1e-8)


@pytest.mark.parametrize("normalized", [True, False])
def test_two_equal_clusters_are_two_equiangular_tokens(normalized):
    start, end = math.acos(0.1), math.acos(0.9)
    expected = equiangular.travel_time(0.9, 2, 4.0, 0.1, normalized)
    assert merging_time(start, end, 4.0, normalized=normalized) == pytest.approx(expected, rel=1e-10)


def test_cold_clusters_last_exponentially_long():
    for beta, within in ((50.0, 0.05), (200.0, 0.015)):
        leading = math.exp(beta * (1 - math.cos(1.0))) / (beta * math.sin(1.0) ** 2 * (0.3 / 0.6 + 0.6 / 0.3))
        assert merging_time(1.0, 0.1, beta, 0.3, 0.6) == pytest.approx(leading, rel=within)
    assert math.isfinite(merging_time(math.pi - 1e-6, 1e-6, 340.0))
    assert merging_time(1.0, 1.0, 2.0) == 0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: merging_time(0.1, 0.2, 1.0), "come closer"),
        (lambda: merging_time(math.pi, 0.2, 1.0), "start must be"),
        (lambda: merging_time(1.0, 0.0, 1.0), "end must be"),
        (lambda: closing_speed(-0.1, 1.0), "angle must be"),
        (lambda: closing_speed(1.0, 341.0), "beta must be"),
        (lambda: closing_speed(1.0, 1.0, 0.7, 0.7), "at most the mass 1"),
        (lambda: closing_speed(1.0, 1.0, 0.0, 0.7), "mass of a cluster"),
    ],
)
def test_nonsense_is_refused(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()
