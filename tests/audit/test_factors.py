from __future__ import annotations

import math

import pytest
import torch

from metastable.audit.factors import Factors


def dense(low, h):
    return low.left[h] @ low.right[h]


@pytest.mark.parametrize("family", ["bert", "modernbert", "vit", "albert"])
def test_m0_is_the_scaled_sum_of_products(tiny, family):
    for layer in tiny(family).layers[:2]:
        factors = Factors.of(layer)
        centre = layer.norm.centre(torch.eye(layer.d, dtype=torch.float64))
        scale = [math.sqrt(layer.d) / float((centre @ w.B @ centre).norm()) for w in layer.heads]
        M0 = sum(s * centre @ w.V @ centre @ w.B.T @ centre for s, w in zip(scale, layer.heads, strict=True))
        torch.testing.assert_close(factors.sum_products, M0, rtol=1e-9, atol=1e-9)
        total = sum(centre @ w.V @ centre for w in layer.heads)
        torch.testing.assert_close(factors.sum_values, total, rtol=1e-9, atol=1e-9)


def test_mismatched_traces_are_traces(tiny):
    factors = Factors.of(tiny("bert").layers[1])
    table = factors.mismatched_traces()
    for h in range(3):
        for g in range(3):
            A, B = dense(factors.values, h), dense(factors.scores, g)
            assert float(table[h, g]) == pytest.approx(float((A @ B.T).trace() / (A.norm() * B.norm())), rel=1e-9)


def test_rematched_heads_use_the_scores_of_their_neighbour(tiny):
    """The control moves scores and fields by one head and leaves the values where they are."""
    own = Factors.of(tiny("bert").layers[1])
    other = own.rematched()
    for h in range(3):
        torch.testing.assert_close(dense(other.values, h), dense(own.values, h), rtol=0, atol=0)
        torch.testing.assert_close(dense(other.scores, h), dense(own.scores, h - 1), rtol=0, atol=0)
        torch.testing.assert_close(other.field[h], own.field[h - 1], rtol=0, atol=0)
