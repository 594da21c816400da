import math

import mpmath
import numpy as np
import pytest

from metastable.errors import InvalidInput
from metastable.theory import moebius


def exact_disorder(eta, d):
    """1 - f_d by its hypergeometric series in forty digits."""
    with mpmath.workdps(40):
        e = mpmath.mpf(eta)
        if d == 3:
            return float(1 - mpmath.coth(e) + e / mpmath.sinh(e) ** 2)
        a = mpmath.mpf(d - 1) / 2
        return float(mpmath.exp(-2 * e) * mpmath.hyp2f1(1, a + 1, 2 * a + 1, 1 - mpmath.exp(-2 * e)))


@pytest.mark.parametrize("d", [2, 3, 4, 5, 8, 9, 64, 1001])
@pytest.mark.parametrize("eta", [1e-3, 0.1, 0.5, 2.0, 8.0, 20.0])
def test_order_and_disorder_are_the_hypergeometric_function(d, eta):
    exact = exact_disorder(eta, d)
    assert moebius.disorder(eta, d) == pytest.approx(exact, rel=1e-13)
    assert moebius.order(eta, d) == pytest.approx(1 - exact, rel=1e-12)
    assert moebius.order(-eta, d) == pytest.approx(-moebius.order(eta, d), rel=1e-13)
    assert moebius.disorder(-eta, d) == pytest.approx(2 - exact, rel=1e-13)


def test_closed_forms_on_the_circle_and_on_the_sphere():
    eta = np.linspace(0.2, 9, 12)
    assert moebius.order(eta, 2).numpy() == pytest.approx(np.tanh(eta / 2), rel=1e-14)
    assert moebius.order(eta, 3).numpy() == pytest.approx(1 / np.tanh(eta) - eta / np.sinh(eta) ** 2, rel=1e-12)


def test_small_shifts_and_large_dimensions_are_linear():
    for d in (2, 3, 7, 100_000):
        assert moebius.order(1e-9, d) == pytest.approx((d - 1) / d * 1e-9, rel=1e-12)
    assert moebius.order(0.7, 10**6) == pytest.approx(math.tanh(0.7), rel=1e-5)
    assert moebius.order(0.0, 5) == 0.0 and moebius.disorder(0.0, 5) == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize("d", [2, 3, 4, 8, 100])
def test_the_shift_solves_its_equation(d):
    """eta' = f_d(eta) against an integrator of order 8."""
    from scipy.integrate import solve_ivp

    times = np.array([0.5, 3.0, 10.0, 25.0])
    path = solve_ivp(
        lambda t, y: moebius.order(y, d), (0, 25), [0.05], "DOP853", t_eval=times, rtol=1e-12, atol=1e-14
    )
    found = moebius.shift(times, 0.05, d)
    assert found.numpy() == pytest.approx(path.y[0], rel=1e-10)
    for t, eta in zip(times, found.tolist(), strict=True):
        assert moebius.travel_time(0.05, eta, d) == pytest.approx(t, rel=1e-12)


def test_golden_values_of_the_circle():
    assert round(moebius.order(moebius.shift(4.0, 0.5, 2), 2), 6) == 0.881469
    t, start = np.linspace(0, 12, 7), 0.5
    closed = 1 / np.sqrt(1 + (1 / math.tanh(start / 2) ** 2 - 1) * np.exp(-t))
    assert moebius.order(moebius.shift(t, start, 2), 2).numpy() == pytest.approx(closed, rel=1e-13)


def test_the_order_finds_its_shift_and_uniform_tokens_rest():
    for d in (2, 3, 10):
        for R in (-0.3, 1e-9, 0.5, 0.999):
            assert moebius.order(moebius.shift_of_order(R, d), d) == pytest.approx(R, rel=1e-12)
    assert moebius.shift_of_order(0.0, 3) == 0.0 and moebius.shift(7.0, 0.0, 3) == 0.0
    assert moebius.shift(np.zeros((2, 0)), 0.5, 3).shape == (2, 0)


@pytest.mark.parametrize("d", [2, 3, 6])
def test_the_density_has_mass_one_and_the_order_as_its_mean(d):
    from scipy import integrate, special

    eta = 1.3
    norm = special.beta(0.5, (d - 1) / 2)

    def moment(k):
        # u = sin(a): the ends of the marginal become smooth.
        return integrate.quad(
            lambda a: math.sin(a) ** k * moebius.relative_density(math.sin(a), eta, d) * math.cos(a) ** (d - 2),
            -math.pi / 2, math.pi / 2, epsabs=1e-13,
        )[0] / norm  # fmt: skip

    assert moment(0) == pytest.approx(1.0, abs=1e-11) and moment(1) == pytest.approx(
        moebius.order(eta, d), abs=1e-11
    )


def test_overlaps_move_along_the_axis():
    u = np.array([-1.0, -0.5, 0.0, 0.3, 1.0])
    moved = moebius.moved_overlap(u, 0.8)
    assert moved[[0, 4]].tolist() == [-1.0, 1.0]
    assert moved[1:4].numpy() == pytest.approx(np.tanh(np.arctanh(u[1:4]) + 0.8), rel=1e-14)
    assert moebius.moved_overlap(moved, -0.8).numpy() == pytest.approx(u, abs=1e-14)
    assert moebius.moved_overlap([-1.0, 0.0], 350.0).tolist() == [-1.0, 1.0]


STRANGE = [
    None,
    "3",
    {},
    [[1.0], [1.0, 2.0]],
    1j,
    math.nan,
    math.inf,
    10**400,
    -1e9,
    object(),
    np.full((2, 2), 2e9),
]


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "call",
    [
        lambda v: moebius.order(v, 3),
        lambda v: moebius.order(0.5, v),
        lambda v: moebius.disorder(0.5, v),
        lambda v: moebius.shift(v, 0.5, 3),
        lambda v: moebius.shift(1.0, v, 3),
        lambda v: moebius.shift_of_order(v, 3),
        lambda v: moebius.travel_time(v, 1.0, 3),
        lambda v: moebius.travel_time(0.5, v, 3),
        lambda v: moebius.moved_overlap(v, 0.5),
        lambda v: moebius.moved_overlap(0.5, v),
        lambda v: moebius.relative_density(v, 0.5, 3),
        lambda v: moebius.relative_density(0.5, v, 3),
    ],
)
def test_malformed_calls_are_sentences(call, value):
    with pytest.raises(InvalidInput) as refused:
        call(value)
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


def test_densities_that_overflow_are_refused():
    with pytest.raises(InvalidInput, match="overflows at shift 350"):
        moebius.relative_density(1.0, 350.0, 10)
