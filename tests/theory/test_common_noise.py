"""The two-point motion against Ito's formula by matrices, its exponents, coercivity, and golden values."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows.covariance import ACTIVATIONS, Covariance
from metastable.theory import TwoPointMotion, largest_dimension


@pytest.mark.parametrize("name", ["linear", "constant", "relu", "gelu", "tanh"])
@pytest.mark.parametrize("d", [2, 3, 7])
def test_drift_and_variance_by_ito_s_formula(name, d):
    """From the covariance of (dx, dy) as a matrix: nothing is simplified by hand."""
    kappa, scale = Covariance.of_activation(name), 0.7
    for g in (-0.9, 0.0, 0.3, 0.99):
        x, y = np.eye(d)[0], g * np.eye(d)[0] + math.sqrt(1 - g * g) * np.eye(d)[1]
        px, py = np.eye(d) - np.outer(x, x), np.eye(d) - np.outer(y, y)
        cross = float(kappa(g)) * px @ py
        ito = -(d - 1) / 2 * kappa.one * 2 * g + np.trace(cross)
        square = kappa.one * (y @ px @ y + x @ py @ x) + 2 * y @ cross @ x
        motion = TwoPointMotion(name, d, scale)
        assert float(motion.drift(g)) == pytest.approx(scale**2 * ito, abs=1e-12)
        assert float(motion.variance(g)) == pytest.approx(scale**2 * square, abs=1e-12)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_exponents_are_the_limits_of_drift_and_variance(name):
    for d, v in ((2, 0.0), (4, 1.0), (20, -0.5)):
        motion = TwoPointMotion(name, d, 1.3, attention=v, beta=2.0)
        e = 1e-7
        growth, spread = -float(motion.drift(1 - e)) / e, float(motion.variance(1 - e)) / e**2
        assert growth == pytest.approx(motion.growth, abs=2e-2 * d)  # ReLU approaches like sqrt(e)
        assert spread == pytest.approx(motion.spread, abs=2e-2)
        assert motion.lyapunov == pytest.approx(motion.growth - motion.spread / 2, abs=1e-12)
        assert motion.synchronises == (motion.lyapunov < 0)


def test_attention_is_that_of_the_flow():
    g, beta, v = 0.4, 1.7, -0.6
    x = torch.tensor([[1.0, 0.0, 0.0], [g, math.sqrt(1 - g * g), 0.0]], dtype=torch.float64)
    w = ms.AttentionWeights(V=v * torch.eye(3), B=torch.eye(3))
    slope = ms.SelfAttention(w, beta).velocity(0.0, x, torch.tensor([0.5, 0.5]).double())
    rate = float(slope[0] @ x[1] + x[0] @ slope[1])
    assert float(TwoPointMotion("relu", 3, scale=0.0, attention=v, beta=beta).drift(g)) == pytest.approx(rate)


def test_golden_values():
    for d in (2, 3, 6, 40):
        assert TwoPointMotion("linear", d).lyapunov == -2.0
        assert TwoPointMotion("constant", d).lyapunov == 1.0 - d
        assert TwoPointMotion("relu", d).lyapunov == -1.0
    assert [TwoPointMotion("tanh", d).synchronises for d in (3, 14, 15)] == [True, True, False]
    assert largest_dimension("tanh") == 14 and largest_dimension("linear") == math.inf
    assert TwoPointMotion("relu", 5).growth == 1.0 and float(TwoPointMotion("relu", 5).drift(0.3)) > 0
    assert TwoPointMotion("constant", 6, attention=-1.0).lyapunov == -3.0
    one_layer = TwoPointMotion("relu", 5)
    assert float(one_layer.drift(0.3)) == pytest.approx(0.14584, abs=5e-6)
    assert float(one_layer.variance(0.3)) == pytest.approx(0.778, abs=5e-4)


def test_largest_dimension_is_where_the_exponent_changes_sign():
    for name in ("tanh", "erf", "sin", "gelu", "silu"):
        d = int(largest_dimension(name))
        assert TwoPointMotion(name, d).synchronises and not TwoPointMotion(name, d + 1).synchronises


@pytest.mark.parametrize(
    ("name", "d"), [("constant", 6), ("sigmoid", 5), ("relu", 4), ("sigmoid", 3), ([1, 0, 1], 8)]
)
def test_coercivity_is_the_least_quotient(name, d):
    motion = TwoPointMotion(name, d)
    quotient = lambda g: float(motion.drift(g)) / (1 - g)  # noqa: E731
    grid = np.linspace(-1, 0.999, 300)
    start = grid[np.argmin([quotient(g) for g in grid])]
    found = optimize.minimize_scalar(
        quotient, bounds=(max(start - 0.02, -1), min(start + 0.02, 0.9999)), method="bounded"
    )
    assert motion.coercivity == pytest.approx(min(found.fun, quotient(-1.0), -motion.growth), abs=1e-4)


def test_coercivity_of_constant_noise():
    """b = (1-g)(d-2-g)."""
    assert TwoPointMotion("constant", 7).coercivity == pytest.approx(4.0, abs=1e-5)
    assert TwoPointMotion("constant", 7, attention=-1.0).coercivity == pytest.approx(2.0, abs=1e-5)
    assert TwoPointMotion("relu", 7).coercivity == pytest.approx(-1.0, abs=1e-3)


@pytest.mark.parametrize(
    "call",
    [
        lambda: TwoPointMotion("nonsense", 3),
        lambda: TwoPointMotion("relu", 1),
        lambda: TwoPointMotion("relu", 3, scale=-1),
        lambda: TwoPointMotion("relu", 3).drift(2.0),
        lambda: TwoPointMotion(lambda g: 2 * g**2 - 1, 3),
        lambda: largest_dimension(None),
    ],
)
def test_malformed_calls_are_sentences(call):
    with pytest.raises(InvalidInput) as refused:
        call()
    assert len(str(refused.value)) < 200
