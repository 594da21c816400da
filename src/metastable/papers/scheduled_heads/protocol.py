"""The published experiment: tokens near few directions, heads that relax to a target, the flow that descends.

T = 20, dt = 5e-3, n = 200 tokens on the sphere (100 on the circle), H in {1, 10, 100}, nu = 2 for
Ornstein-Uhlenbeck weights and 0 for oscillating ones, D_h(0) = Z + Z^T. Experiments here keep the protocol and
scale its numbers down.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from metastable.flows import HeadDescent
from metastable.flows.head_sums import head_sums
from metastable.measure import Measure
from metastable.weights import OrnsteinUhlenbeck, Target

PAPER = "arXiv:2605.18870"
SPREAD = 0.05
"""Standard deviation of the tokens around their directions before they are normalised, the published one."""
BASE_ANGLES = 5
"""Directions on the circle."""


def tokens(n: int, d: int, seed: int) -> Measure:
    """n tokens around the vertices of the cross polytope (the octahedron for d = 3), or five angles for d = 2."""
    if d == 2:
        angle = 2 * math.pi * np.arange(BASE_ANGLES) / BASE_ANGLES
        base = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    else:
        base = np.concatenate([np.eye(d), -np.eye(d)])
    noise = np.random.default_rng([seed, 1]).standard_normal((n, d))
    return Measure(base[np.arange(n) % len(base)] + SPREAD * noise)


def resting(t: float, steps: int, heads: int, seed: int, d: int = 3, noise: float = 2.0) -> OrnsteinUhlenbeck:
    """Weights that relax to the identity."""
    return OrnsteinUhlenbeck(Target.resting(d, heads), t, steps, noise, seed=seed)


def oscillating(t: float, steps: int, heads: int, seed: int, d: int = 3, noise: float = 0.0) -> OrnsteinUhlenbeck:
    """Weights that follow an oscillating target, without noise unless asked for."""
    return OrnsteinUhlenbeck(Target.oscillating(d, heads), t, steps, noise, seed=seed)


def inverses(steps: np.ndarray) -> dict[float, str]:
    """Marks of an axis of time steps, 1/16 and the like."""
    return {float(step): f"1/{round(1 / step)}" for step in steps}


def published_dissipation(rho: Measure, flow: HeadDescent, t: float) -> float:
    """G^2 as the public code has it: sum_i m_i |v_i|^2/((1/H) sum_h 1/Z_i^h), right for one head."""
    log_z, _ = head_sums(rho.points, rho.mass, flow.heads_at(t, rho.points))
    return float(rho.mass @ (_speed(rho, flow, t) / torch.exp(-log_z).mean(0)))


def squared_speed(rho: Measure, flow: HeadDescent, t: float) -> float:
    """sum_i m_i |v_i|^2: the dissipation of a flow whose mobility is one."""
    return float(rho.mass @ _speed(rho, flow, t))


def _speed(rho: Measure, flow: HeadDescent, t: float) -> Tensor:
    return flow.velocity(t, rho.points, rho.mass).square().sum(1)
