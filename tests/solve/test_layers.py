"""Layers of a random transformer: one layer to the digit, its orders, and its width."""

import math

import pytest
import torch

import metastable as ms
from metastable.flows import CommonNoise
from metastable.solve.brownian import Brownian
from metastable.solve.layers import Layers
from noise_orders import strong_order, weak_order
from small_runs import random_weights


def test_a_layer_is_attention_a_random_layer_the_residual_and_the_norm():
    d, m, h, scale = 3, 6, 0.1, 0.5
    attention = ms.SelfAttention(random_weights(1, d), 2.0)
    flow = CommonNoise(attention, "gelu", scale=scale, width=m)
    rho = ms.Measure(ms.sphere.uniform(4, d, seed=1))
    x, path = rho.points, ms.solve(flow, rho, 3 * h, times=4, step=h, seed=8)
    motion = Brownian(8, h, (1, m, d))
    for k in range(3):
        w1, w2 = motion.fresh(k, (1, d, m))[0], motion.increment(k)[0] / math.sqrt(h)
        noise = torch.nn.functional.gelu(x @ w1) @ w2
        x = x + h * attention.drift(0.0, x, rho.mass).vector + scale * math.sqrt(h / m) * noise
        x = x / x.norm(dim=1, keepdim=True)
        assert torch.allclose(path.points[k + 1], x, atol=1e-13)


def test_strong_order():
    assert strong_order(Layers.name, "linear") == pytest.approx(Layers.strong_order, abs=0.1)


def test_weak_order():
    assert weak_order(Layers.name, "constant", d=8, radial=True) == pytest.approx(Layers.order, abs=0.15)
