"""Obviously right, slow implementations in float64 numpy, to test every fast path against."""

from __future__ import annotations

import numpy as np


def softmax_mean(queries, keys, values, mass, beta):
    """(mean, log Z) of softmax attention, one query at a time, with extended precision sums."""
    means, logs = [], []
    seen = np.asarray(mass) > 0
    keys, values, mass = (np.asarray(a, dtype=np.float64)[seen] for a in (keys, values, mass))
    for query in np.asarray(queries, dtype=np.float64):
        score = (beta * (keys @ query)).astype(np.longdouble) + np.log(mass.astype(np.longdouble))
        top = score.max()
        weight = np.exp(score - top)
        total = weight.sum()
        means.append((weight[:, None] * values).sum(0) / total)
        logs.append(top + np.log(total))
    return np.array(means, dtype=np.float64), np.array(logs, dtype=np.float64)


def project(x, v):
    """P_x v of every row."""
    return v - (x * v).sum(1, keepdims=True) * x


def self_attention(x, mass, V, B, beta):
    """x' = P_x V m."""
    mean, _ = softmax_mean(x @ B, x, x, mass, beta)
    return project(x, mean @ V.T)


def unnormalized(x, mass, V, B, beta):
    """x' = P_x V sum_j m_j e^{beta <x, B y_j>} y_j."""
    weight = np.exp(beta * x @ B @ x.T) * mass
    return project(x, weight @ x @ V.T)


def zero_temperature(x, V, B):
    """x' = P_x V B^T x/|B^T x|."""
    e = x @ B
    return project(x, (e / np.linalg.norm(e, axis=1, keepdims=True)) @ V.T)
