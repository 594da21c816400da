"""Nodes on rings around the poles, and the lengths of targets at which sums are found for a whole ring.

Along a ring of targets on an ellipsoid r = |z| varies between its values r_- and r_+. As a function of log r,
e^{-r(1 - <u, k>)} is analytic and at most one within pi/2 of the real line, and a polynomial that interpolates it
at J Chebyshev nodes errs by at most 4 R^{1-J}/(R - 1), R = s + sqrt(s^2 + 1), s = pi/log(r_+/r_-): the sums are
found for J radii (`sphere.ring_sums`), and every target takes them as its own r tells.
"""

from __future__ import annotations

import math

import numpy as np


def ring_nodes(rings: int) -> np.ndarray:
    """(rings, 3, N): unit vectors at theta = (a + 1/2) pi/rings and phi = 2 pi b/N, N = 2 rings."""
    theta = (np.arange(rings)[:, None] + 0.5) * (math.pi / rings)
    phi = np.arange(2 * rings) * (math.pi / rings)
    high, low = np.sin(theta), np.cos(theta)
    return np.stack((high * np.cos(phi), high * np.sin(phi), np.repeat(low, 2 * rings, axis=1)), axis=1)


def with_sizes(weights: np.ndarray, nodes: np.ndarray) -> np.ndarray:
    """Columns of (rings, c, N) weights of nodes: (w k, w, |w|) for c = 1, that of the masses; else (w, |w|)."""
    sizes = np.sqrt(np.square(weights).sum(axis=1, keepdims=True))
    return np.concatenate((weights * nodes, weights, sizes) if weights.shape[1] == 1 else (weights, sizes), axis=1)


def radii(low: np.ndarray, high: np.ndarray, rest: float) -> np.ndarray:
    """(rings, J): r from which sums at all in [low, high] (rings,) follow with an error below `rest`.

    J is 1 where there is nothing between them.
    """
    widest = float((high / np.maximum(low, 1e-300)).max())
    if widest <= 1.0 + 1e-15:
        return high[:, None]
    s = math.pi / math.log(widest)
    base = s + math.hypot(s, 1.0)
    count = 2 + max(math.ceil(math.log(4.0 / ((base - 1.0) * rest)) / math.log(base)), 0)
    powers = 0.5 * np.cos((np.arange(count) + 0.5) * (math.pi / count))
    return np.sqrt(high * low)[:, None] * (high / low)[:, None] ** powers


def shares(lengths: np.ndarray, count: int) -> np.ndarray:
    """(rings, J, N): the factors of the sums at J `radii` that make the sums at lengths (rings, N)."""
    if count == 1:
        return np.ones((len(lengths), 1, lengths.shape[1]))
    logs = np.log(lengths)
    low, high = logs.min(axis=1, keepdims=True), logs.max(axis=1, keepdims=True)
    place = (2.0 * logs - low - high) / np.maximum(high - low, 1e-300)
    terms = np.empty((count, *lengths.shape))
    terms[0], terms[1] = 1.0, place
    for k in range(2, count):
        terms[k] = 2.0 * place * terms[k - 1] - terms[k - 2]
    terms[0] = 0.5
    angle = np.outer(np.arange(count) + 0.5, np.arange(count)) * (math.pi / count)
    return np.tensordot(np.cos(angle) * (2.0 / count), terms, axes=1).transpose(1, 0, 2)
