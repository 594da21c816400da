"""Hardmax between its switches: which keys, which weights, and when a token slides."""

import math

import pytest
import torch

import metastable as ms
from metastable.flows.keys import FixedKeys, Keys, find_keys, scores
from small_runs import gaussian, random_weights


@pytest.mark.parametrize("seed", range(4))
def test_without_ties_the_field_is_that_of_hardmax(seed):
    w, x = random_weights(seed, 4), ms.sphere.uniform(9, 4, seed=seed)
    keys = find_keys(w, x, 1e-9, torch.ones(len(x)))
    assert keys.tokens == ()
    mass = torch.full((9,), 1 / 9, dtype=torch.float64)
    assert torch.allclose(
        FixedKeys(w, keys).velocity(0.0, x, mass), ms.Hardmax(w).velocity(0.0, x, mass), atol=1e-14
    )


def two_fixed_keys(pull):
    """Token 0 on the circle between two keys of equal score, which rest; V turns what it attends to by `pull`."""
    B, V = torch.eye(3).double(), pull * torch.eye(3).double()
    x = torch.tensor([[1.0, 0.0, 0.0], [-0.6, 0.8, 0.0], [-0.6, -0.8, 0.0]], dtype=torch.float64)
    return ms.AttentionWeights(V=V, B=-B), x


def test_a_token_that_is_led_back_from_both_sides_slides():
    w, x = two_fixed_keys(1.0)  # it sees what is far (B = -I) and goes there: then the other one is farther
    keys = find_keys(w, x, 1e-9, torch.ones(len(x)))
    assert sorted(keys.of(0)) == [1, 2]
    shares = FixedKeys(w, keys).shares(x)
    assert torch.allclose(shares[[0, -1]], torch.tensor([0.5, 0.5], dtype=torch.float64))


@pytest.mark.parametrize("seed", range(6))
def test_sliding_keeps_scores_equal(seed):
    w, x = random_weights(seed, 4), ms.sphere.uniform(7, 4, seed=seed)
    keys = Keys(scores(w, x, torch.ones(len(x))).argmax(1)).with_keys(2, [0, 1, 5]).with_keys(3, [4, 2])
    flow = FixedKeys(w, keys)
    for token, own in ((2, [0, 1, 5]), (3, [4, 2])):
        rates = flow.rates(x, token, own)
        assert float(rates.max() - rates.min()) < 1e-10 * float(1 + rates.abs().max())
    # The rates are the derivatives of the scores along the field.
    velocity = flow.velocity(0.0, x, torch.ones(7).double())
    speed = float(velocity.norm(dim=1).max())
    moved = ms.sphere.exp(x, 1e-6 / speed * velocity)
    difference = (scores(w, moved, torch.ones(len(x))) - scores(w, x, torch.ones(len(x))))[2, [0, 1, 5]] / 1e-6
    assert torch.allclose(flow.rates(x, 2, [0, 1, 5]) / speed, difference, atol=1e-4)


def test_keys_at_one_place_are_one():
    x = ms.sphere.normalize(torch.cat([gaussian(1, 3, 3), gaussian(1, 3, 3)]))
    assert find_keys(random_weights(1, 3), x, 1e-9, torch.ones(len(x))).tokens == ()
    assert math.isclose(float(x.norm()), 6**0.5)
