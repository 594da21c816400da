"""Hardmax by its definition, with all scores in one matrix."""

from __future__ import annotations

import numpy as np
import torch

from attention.attention_reference import masses, tokens


def dense(queries, keys, values, mass, tie=8.0):
    """The definition, with all scores in one matrix."""
    keys, values, mass = keys[mass > 0], values[mass > 0], mass[mass > 0]
    scores = queries @ keys.T
    top = scores.max(dim=1, keepdim=True).values
    slack = tie * torch.finfo(scores.dtype).eps * keys.norm(dim=1).max() * queries.norm(dim=1, keepdim=True)
    chosen = torch.where(scores >= top - slack, mass, 0.0)
    return (chosen @ values) / chosen.sum(dim=1, keepdim=True), top[:, 0]


def same(ours, reference):
    np.testing.assert_allclose(ours[0], reference[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours[1], reference[1], rtol=1e-14, atol=1e-14)


def check_small(way, d, layout, n, seed):
    """A way, called with (queries, keys, values, mass, slack), against the definition for a few tokens."""
    keys, mass = tokens(n, d, layout, seed), masses(n, seed) + 0.1
    queries = tokens(25, d, "uniform", seed + 1)
    slack = 8 * torch.finfo(torch.float64).eps * queries.norm(dim=1)
    same(way(queries, keys, keys, mass, slack), dense(queries, keys, keys, mass))
