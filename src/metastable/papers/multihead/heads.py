"""Heads and tokens of the experiments, and how they run: x_i' = P_{x_i} (1/n) sum_h f_i^h."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from metastable.flows import Flow, MultiHead, SelfAttention, UnnormalizedAttention
from metastable.observe import interaction_energy
from metastable.papers.running import kept
from metastable.solve import Path
from metastable.weights import AttentionWeights

Matrices = Sequence[np.ndarray]
"""M_h of every head."""


def symmetric(d: int, heads: int, seed: int) -> list[np.ndarray]:
    """Random symmetric matrices of norm 1."""
    drawn = np.random.default_rng(seed).normal(size=(heads, d, d))
    return [M / np.linalg.norm(M, 2) for M in drawn + drawn.transpose(0, 2, 1)]


def orthogonal(d: int, heads: int, seed: int, tilt: float = 0.0) -> list[np.ndarray]:
    """Projectors on `heads` spaces of equal dimension with M_h M_h' = 0.

    tilt: an angle by which one direction of every space leans towards the next space, so that M_h M_h' is of that
    size.
    """
    axes = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))[0]
    spaces = [axes[:, part].copy() for part in np.split(np.arange(d), heads)]
    leaning = [space[:, :1].copy() for space in spaces]
    for h in range(heads if tilt else 0):
        towards = leaning[(h + 1) % heads]
        spaces[h][:, :1] = np.cos(tilt) * leaning[h] + np.sin(tilt) * towards
    return [space @ space.T for space in spaces]


def scalar(d: int, strengths: Sequence[float]) -> list[np.ndarray]:
    """M_h = m_h I."""
    return [m * np.eye(d) for m in strengths]


def together(matrices: Matrices, beta: float) -> MultiHead:
    """The unnormalised flow of heads with scores and values M_h (Score Symmetry, Value Alignment)."""
    weights = [AttentionWeights(V=M, B=M) for M in matrices]
    return MultiHead([UnnormalizedAttention(w, beta, rtol=None) for w in weights])


def softmax(matrices: Matrices, beta: float) -> MultiHead:
    """The same heads with softmax: every head and token has a partition of its own."""
    weights = [AttentionWeights(V=M, B=M) for M in matrices]
    return MultiHead([SelfAttention(w, beta, rtol=None) for w in weights])


def misaligned(matrices: Matrices, values: Matrices, beta: float) -> MultiHead:
    """Unnormalised heads whose values are others than their scores."""
    weights = [AttentionWeights(V=V, B=M) for V, M in zip(values, matrices, strict=True)]
    return MultiHead([UnnormalizedAttention(w, beta, rtol=None) for w in weights])


def overlaps(path: Path) -> np.ndarray:
    """The mean overlap of two different tokens at the saved times."""
    n = path.points.shape[1]
    squares = path.points.sum(1).square().sum(1).numpy()
    return (squares - n) / (n * (n - 1))


def total_energy(matrices: Matrices, beta: float, path: Path) -> np.ndarray:
    """E = sum_h (1/2 beta n^2) sum_ij e^{beta <x_i, M_h x_j>} at the saved times, whatever moves the tokens."""
    weights = [AttentionWeights(V=M, B=M) for M in matrices]
    frames = [path.measure(k) for k in range(len(path))]
    return np.array([sum(interaction_energy(rho, w, beta) for w in weights) for rho in frames])


def run(flow: Flow, tokens: Tensor, times: Sequence[float] | np.ndarray, rtol: float = 1e-10) -> Path:
    """The flow from these tokens, kept at the given times; an identity is asked for all digits."""
    return kept(flow, tokens, times, rtol)


def resolved(heads: int, beta: float) -> float:
    """A time over which `gauss` integrates all that heads of norm 1 do.

    20 over the Lipschitz constant H e^beta (2 + beta) of their field: 2.5 in every panel, where 8 Gauss points
    leave 1e-14.
    """
    return float(20 / (heads * np.exp(beta) * (2 + beta)))
