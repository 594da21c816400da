"""Retrieval measured on n tokens of S^{d-1}: by the trace of the derivative of the last token (K9).

The readout is linear, <x_last(t), x_s(0)>. For x_s(0) uniform on the sphere integration by parts gives
    n E<x_last(t), x_s(0)> = n/(d-1) E tr(P_s D_s),   D_s = d x_last(t)/d x_s(0),
in which a derivative of order 1/n stands for a correlation of order 1/n. The trace is the mean of
<D_s^T v, P_s v> over v of length sqrt(d-1), uniform in the tangent space of x_last(t): one run of the adjoint for
all s and any d. On the circle nothing is left to the choice of v.
"""

from __future__ import annotations

import math

import numpy as np

from metastable import sphere
from metastable.flows.sphere_systems import SphereSystems
from metastable.measure import Measure
from metastable.papers.lost_in_the_middle.sampling import RTOL, Measured, averaged
from metastable.solve import solve
from metastable.theory import growth_rate, retrieval_profile


def linear_rate(d: int, beta: float, normalized: bool) -> float:
    """a of g_a for the linear readout (K9): (d-1) E[u e^{beta u}], or (d-1) A_d(beta)/beta of softmax.

    The drift of unnormalised attention has the factor beta here, that of softmax has not.
    """
    return growth_rate(1, beta, d, normalized) * (1.0 if normalized else beta)


def linear_profile(s: np.ndarray, depth: float, alibi: float) -> np.ndarray:
    """g_a(t; s) at depth = a t."""
    return np.asarray(retrieval_profile(s, depth / linear_rate(2, 1.0, False), 1.0, alibi, width=1e9, modes=1))


def measured_on_sphere(
    n: int, d: int, t: float, beta: float, alibi: float, normalized: bool, samples: int, seed: int
) -> Measured:
    """Linear retrieval by the last of n tokens, relative to the closed form at the same places."""
    start = sphere.uniform(samples * n, d, seed=seed).numpy().reshape(samples, n, d)
    _, tangent, pulled = adjoint(start, t, beta, alibi, normalized, seed)
    pulled -= (pulled * start).sum(2, keepdims=True) * start
    values = n / (d - 1) * (pulled * tangent[:, None]).sum(2)
    closed = linear_profile(np.arange(1, n - 1) / n, linear_rate(d, beta, normalized) * t, alibi)
    overlap = (start[:, -1:] * start[:, 1:-1]).sum(2)
    known = [lambda part: overlap[:, part], lambda part: overlap[:, part] ** 2 - 1 / d]
    return averaged(values[:, 1:-1], closed, known)


def adjoint(
    start: np.ndarray, t: float, beta: float, alibi: float, normalized: bool, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tokens at time t of systems that start at these (samples, n, d), v, and D_s^T v for all tokens s."""
    samples, n, d = start.shape
    forward = SphereSystems(n, d, beta, alibi, normalized)
    path = solve(forward, Measure(start.reshape(-1, d), sphere=False), t, times=[0.0, t], rtol=RTOL, atol=RTOL)
    end = path.points[-1].numpy().reshape(samples, n, d)
    last = end[:, -1]
    v = np.random.default_rng([seed, 1]).normal(size=(samples, d))
    v -= (v * last).sum(1, keepdims=True) / (last**2).sum(1, keepdims=True) * last
    v *= math.sqrt(d - 1) / np.linalg.norm(v, axis=1, keepdims=True)
    rows = np.zeros((samples, n, 2 * d))
    rows[:, :, :d], rows[:, -1, d:] = end, v
    back = SphereSystems(n, d, beta, alibi, normalized, backwards=True)
    reverse = solve(back, Measure(rows.reshape(-1, 2 * d), sphere=False), t, times=[0.0, t], rtol=RTOL, atol=RTOL)
    return end, v, reverse.points[-1].numpy().reshape(samples, n, 2 * d)[:, :, d:]
