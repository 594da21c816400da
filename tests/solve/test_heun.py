"""Orders of Heun: 1/2 for single paths, 1 for expectations."""

import math

import numpy as np
import pytest

from metastable.flows import CommonNoise
from metastable.flows.covariance import Covariance
from metastable.papers.common_noise.pairs import distance, mean_and_error, pairs
from metastable.solve import solve
from metastable.solve.heun import Heun
from noise_orders import strong_order, weak_order


@pytest.mark.parametrize("activation", ["constant", "linear", "relu"])
def test_strong_order(activation):
    assert strong_order(Heun.name, activation) == pytest.approx(Heun.strong_order, abs=0.1)


@pytest.mark.parametrize("activation", ["constant", "relu"])
def test_weak_order(activation):
    assert weak_order(Heun.name, activation) == pytest.approx(Heun.order, abs=0.1)


@pytest.mark.parametrize(("kappa", "order"), [("relu", 1), ("gelu", 2), ("tanh", 2)])
def test_slopes_of_relu_are_less_alike_at_two_places_than_weak_order_one_needs(kappa, order):
    """Slopes of the field across two places at an angle theta: their correlation is 1 - theta/pi for ReLU."""
    covariance = Covariance.of_activation(kappa)
    angle, step = np.array([0.2, 0.1]), 1e-3
    # Slopes by differences of tokens 2 sin(step) apart, across the plane of x and y.
    near, far = (np.cos(angle) * np.cos(step) ** 2 + sign * np.sin(step) ** 2 for sign in (1, -1))
    own = 2 * (covariance.one - covariance(np.cos(2 * step)))
    lost = 1 - 2 * (covariance(near) - covariance(far)) / own
    assert math.log2(lost[0] / lost[1]) == pytest.approx(order, abs=0.1)
    if kappa == "relu":
        assert lost == pytest.approx(angle / math.pi, rel=0.02)


@pytest.mark.slow
def test_weak_order_one_half_of_relu_near_consensus():
    """In one step of d kappa(1) h = 0.2 and 0.05, beside Euler-Maruyama on the same noise, of weak order one: order
    one would leave a fourth. 200,000 pairs, a standard error of 0.016; seed 5. (d-3) theta/2pi alone is 0.16.
    """
    flow, d, rates = CommonNoise(activation="relu"), 8, []
    for size in (0.2, 0.05):
        h = size / (d * flow.covariance.one)
        heun, euler = (
            np.log(distance(solve(flow, pairs(200_000, d, 1e-7), h, step=h, seed=5, method=name).end.points))
            for name in ("heun", "euler-maruyama")
        )
        rates.append(mean_and_error((heun - euler) / (size / d)))
    (coarse, coarse_error), (fine, fine_error) = rates
    z = (fine - coarse / 4) / math.hypot(fine_error, coarse_error / 4)
    assert z < -4
    assert fine < -0.16
