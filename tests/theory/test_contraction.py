import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import metastable as ms
from metastable.theory import spectrum
from metastable.theory.contraction import Symmetric, above_half, below_half, turned
from random_heads import head


def integrated(angle, rate, push, h):
    def slope(_, y):
        return -rate * math.sin(y[0]) * math.cos(y[0]) + push

    return float(solve_ivp(slope, (0, h), [angle], rtol=1e-11, atol=1e-12).y[0, -1])


def test_a_turn_is_the_solution():
    rng = np.random.default_rng(0)
    for _ in range(60):
        angle, rate, push, h = rng.uniform(0, 1.5), rng.uniform(0, 3), rng.uniform(-0.5, 0.5), rng.uniform(0, 0.5)
        expected = integrated(angle, rate, push, h)
        if 0 < expected < math.pi / 2:
            assert float(turned(*map(np.array, (angle, rate, push)), h)) == pytest.approx(expected, abs=1e-8)


def test_the_steps_are_upper_bounds():
    rng = np.random.default_rng(1)
    for _ in range(200):
        rate, push, h = rng.uniform(0.01, 3), rng.uniform(-2, 2), rng.uniform(0, 1)
        low, high = rng.uniform(0, math.pi / 2), rng.uniform(math.pi / 2, math.pi)
        below = float(below_half(*map(np.array, (low, rate, push)), h))
        above = float(above_half(*map(np.array, (high, rate, push)), h))
        assert below >= min(integrated(low, rate, push, h), math.pi / 2) - 1e-8
        assert above >= min(integrated(high, rate, push, h), math.pi) - 1e-8


@pytest.mark.parametrize(("seed", "d"), [(0, 2), (1, 3), (2, 4), (3, 5)])
def test_images_are_bounded_by_the_angle(seed, d):
    """|B^T x| <= largest_image(theta), and it is attained for d = 2."""
    system = Symmetric(spectrum(head(np.random.default_rng(seed), d)))
    w = head(np.random.default_rng(seed), d)
    x = ms.sphere.uniform(4000, d, seed=seed).numpy()
    theta = system.at(x, x).theta
    images = np.linalg.norm(x @ w.B.numpy(), axis=1)
    assert (images <= system.largest_image(theta) * (1 + 1e-12)).all()
    assert (np.diff(system.largest_image(np.linspace(0, math.pi / 2, 50))) >= -1e-12).all()
    assert (images / system.largest_image(theta)).max() > 0.9
