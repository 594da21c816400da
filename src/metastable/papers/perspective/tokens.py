"""Tokens and flows of this paper: V = B = I, equiangular tokens, overlaps of all pairs."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.flows import SelfAttention, UnnormalizedAttention
from metastable.weights import AttentionWeights

NAMES = {True: "softmax", False: "unnormalised"}
"""The two flows by whether attention is normalised."""


def identity(d: int, v: float = 1.0, b: float = 1.0) -> AttentionWeights:
    """V = v I, B = b I."""
    return AttentionWeights(V=v * np.eye(d), B=b * np.eye(d))


def attention(
    d: int, beta: float, normalized: bool = True, v: float = 1.0
) -> SelfAttention | UnnormalizedAttention:
    """The softmax or the unnormalised flow with B = I and V = v I, with all digits; beta < 0 turns B around."""
    kind = SelfAttention if normalized else UnnormalizedAttention
    return kind(identity(d, v, -1.0 if beta < 0 else 1.0), abs(beta), rtol=None)


def overlaps(points: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m p"]:
    """<x_i, x_j> of all pairs i < j."""
    n = points.shape[-2]
    i, j = torch.triu_indices(n, n, offset=1)
    return (points @ points.transpose(-1, -2))[..., i, j]


def gaps(points: Float[Tensor, "*m n d"]) -> Float[Tensor, "*m p"]:
    """1 - <x_i, x_j> = |x_i - x_j|^2/2 of all pairs i < j, with all digits near consensus."""
    n = points.shape[-2]
    i, j = torch.triu_indices(n, n, offset=1)
    return (points[..., i, :] - points[..., j, :]).square().sum(-1) / 2
