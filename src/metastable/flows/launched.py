"""Attention in a run on a GPU as launches alone: what the weights promise of all its calls."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from metastable.attention.gpu import GPU_FLOAT64, TRITON, Promise, can_promise
from metastable.attention.kernel import Kernel
from metastable.attention.operands import Operands
from metastable.weights import AttentionWeights

ROUNDED_UP = 1.000001
"""Unit vectors are so to rounding; bounds of what matrices make of them are a little larger."""


def promised(
    kernel: Kernel, operands: Operands, weights: AttentionWeights, allowed: float | None
) -> Promise | None:
    """Bounds of every call with unit tokens and these masses, if the kernel needs no more; None if it does.

    allowed: what float32 may round away, of which the bounds may leave less than these very operands.
    """
    if kernel not in (GPU_FLOAT64, TRITON) or operands.pairs == 0:
        return None
    promise = promise_of(weights, operands)
    precision = kernel.precision or torch.float64
    if not can_promise(operands.keys.shape[1], operands.values.shape[1], operands.beta, promise, precision):
        return None
    if kernel is TRITON and operands.queries.dtype == torch.float64:
        # The bound of rounding is affine in the largest score, which is beta |Q| |K| at most.
        largest = operands.beta * promise.length * promise.radius / 2
        grown = max(1.0, largest / max(operands.largest_score, torch.finfo(torch.float64).tiny))
        if allowed is None or kernel.rounding(operands) * grown > allowed:
            return None
    return promise


def promise_of(weights: AttentionWeights, operands: Operands) -> Promise:
    """|q| <= |Q|, |k - c| <= 2 |K|, |v - c_v| <= 2 |V| for unit tokens, and what the masses are."""
    query, key = (weights.dense_B, None) if weights.query is None else (weights.query, weights.key)
    lengths = [_norm(matrix) for matrix in (query, key, None if weights.output is None else weights.value)]
    length, radius, value_radius = lengths[0], 2 * lengths[1], 2 * lengths[2]
    equal = bool((operands.mass == operands.mass[0]).all())
    return Promise(length, radius, value_radius, equal, operands.log_mass_ratio * math.log2(math.e))


def _norm(matrix: Tensor | None) -> float:
    return ROUNDED_UP * (1.0 if matrix is None else float(torch.linalg.matrix_norm(matrix, 2)))
