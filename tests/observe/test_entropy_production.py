"""The change of the entropies of attention against finite differences, in blocks, and for bad input."""

from importlib import import_module

import pytest
import torch

import metastable as ms
from metastable import observe
from metastable.errors import InvalidInput
from small_runs import equiangular, gaussian, identity, random_measure, random_weights


@pytest.mark.parametrize("seed", range(4))
def test_production_is_the_derivative_of_the_entropies(seed):
    """Unequal masses, weights that are not symmetric, tokens of mass zero, any tangent velocity."""
    w, rho, beta, step = random_weights(seed, 4), random_measure(seed, 9, 4), 1.7, 1e-5
    mass = rho.mass.clone()
    mass[3] = 0.0
    rho = ms.Measure(rho.points, mass)
    velocity = gaussian(seed + 50, 9, 4)
    velocity = velocity - (velocity * rho.points).sum(1, keepdim=True) * rho.points
    after, before = (
        observe.attention_entropy(ms.Measure(rho.points + s * velocity, rho.mass), w, beta) for s in (step, -step)
    )
    found = observe.entropy_production(rho, w, beta, velocity)
    assert (found - (after - before) / (2 * step)).abs().max() < 1e-8


def test_blocks_of_rows_give_the_same_digits(monkeypatch):
    rho, w = random_measure(5, 30, 3), random_weights(5, 3)
    velocity = gaussian(1, 30, 3)
    whole = observe.entropy_production(rho, w, 2.0, velocity)
    monkeypatch.setattr(import_module("metastable.observe.entropy_production"), "PAIRS", 100)
    assert (observe.entropy_production(rho, w, 2.0, velocity) - whole).abs().max() < 1e-14


def test_equiangular_tokens_that_gather_gain_entropy():
    n, g, beta = 6, 0.2, 1.5
    rho, w = ms.Measure(equiangular(n, g)), identity(n)
    velocity = ms.UnnormalizedAttention(w, beta).velocity(0.0, *rho)
    assert float(observe.entropy_production(rho, w, beta, velocity).min()) > 0.01
    assert float(observe.entropy_production(rho, w, beta, -velocity).max()) < -0.01


@pytest.mark.parametrize(
    "change",
    [
        {"rho": [[1.0], [2.0]]},
        {"weights": None},
        {"weights": identity(3)},
        {"beta": -1.0},
        {"beta": 10**400},
        {"velocity": None},
        {"velocity": [[0.0, 1.0]]},
        {"velocity": torch.full((2, 2), float("nan"))},
    ],
)
def test_malformed_calls_are_sentences(change):
    right = {"rho": torch.eye(2), "weights": identity(2), "beta": 1.0, "velocity": torch.zeros(2, 2)}
    with pytest.raises(InvalidInput) as refused:
        observe.entropy_production(**(right | change))
    assert len(str(refused.value)) < 200
