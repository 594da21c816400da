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
    observed,
    root_exponent,
    uniform_contexts,
    watched,
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
        (-0.5, exponent_error(counts, [0.02] * 3))
    )
    random = np.random.default_rng(0)
    noisy = [
        root_exponent(counts, [Mean(1 / n * (1 + 0.1 * random.standard_normal()), 0.1 / n) for n in counts])
        for _ in range(400)
    ]
    spread = np.std([fit.exponent for fit in noisy])
    assert spread == pytest.approx(noisy[0].error, rel=0.15)
    assert averaged([Fit(-0.4, 0.03), Fit(-0.6, 0.04)]) == pytest.approx((-0.5, 0.025))


def test_means_carry_their_standard_error():
    assert Mean.of(np.array([1.0, 3.0])) == pytest.approx((2.0, 1.0))
    assert Mean.of(torch.ones(5)).error == 0.0 and math.isfinite(Mean.of(torch.ones(5)).value)
