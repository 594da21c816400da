import math

import numpy as np
import pytest
import torch

from metastable import sphere
from metastable.papers.chaos.sampling import (
    Fit,
    Mean,
    averaged,
    exponent_error,
    identity,
    next_orders,
    observed,
    root_exponent,
    uniform_contexts,
    watched,
    with_fewer,
)


def test_nobody_sees_an_observer():
    contexts, few = uniform_contexts(3, 20, 3, seed=1), sphere.uniform(2, 3, seed=2)
    many = sphere.uniform(9, 3, seed=3)
    flow = identity(3, 2.0)
    alone = watched(flow, contexts, few, [0.0, 0.7], rtol=1e-9)
    together = watched(flow, contexts, torch.cat([few, many]), [0.0, 0.7], rtol=1e-9)
    assert torch.allclose(alone[1], together[1][:, :2], atol=1e-7)
    assert observed(contexts, few).mass[:, -2:].abs().max() == 0


def test_exponents_and_their_errors():
    counts = np.array([10, 40, 160])
    assert root_exponent(counts, [Mean(5.0 / n, 0.1 / n) for n in counts]) == pytest.approx(
        (-0.5, exponent_error(counts, [0.02] * 3), 0.0)
    )
    random = np.random.default_rng(0)
    noisy = [
        root_exponent(counts, [Mean(1 / n * (1 + 0.1 * random.standard_normal()), 0.1 / n) for n in counts])
        for _ in range(400)
    ]
    spread = np.std([fit.exponent for fit in noisy])
    assert spread == pytest.approx(noisy[0].error, rel=0.15)
    assert averaged([Fit(-0.4, 0.03), Fit(-0.6, 0.04)]) == pytest.approx((-0.5, 0.025, 0.0))


def test_next_orders_are_those_of_the_law():
    """Squares 5/n e^{-3/n + 6/n^2}: they and what they do to a plain fit are found."""
    n = np.array([8, 16, 32, 80, 200])
    order = -3 / n + 6 / n**2
    squares = [Mean(value, 0.01 * value) for value in 5 / n * np.exp(order)]
    assert next_orders(n, squares) == pytest.approx(order)
    fit = root_exponent(n, squares, 2)
    assert fit.exponent == pytest.approx(-0.5 + fit.bend) and 0.005 < fit.bend < 0.05
    assert with_fewer((32, 96), (50, 20))[0] == (8, 200)


def test_means_carry_their_standard_error():
    assert Mean.of(np.array([1.0, 3.0])) == pytest.approx((2.0, 1.0))
    assert Mean.of(torch.ones(5)).error == 0.0 and math.isfinite(Mean.of(torch.ones(5)).value)
