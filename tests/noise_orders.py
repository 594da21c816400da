"""Measured orders of methods for flows with noise: of single paths, and of expectations."""

import math

import numpy as np
import torch

import metastable as ms
from metastable.flows import CommonNoise
from metastable.solve.brownian import Brownian


def strong_order(method: str, activation: str, seed: int = 3) -> float:
    """Slope of the rms distance to the path of the finest step, over systems of two tokens."""
    x = ms.sphere.uniform(400, 3, seed=seed).view(200, 2, 3)
    flow, steps, finest = CommonNoise(activation=activation), 2.0 ** -np.arange(5, 9), 2.0**-11

    def end(h: float) -> torch.Tensor:
        return ms.solve(flow, ms.Ensemble(x), 0.25, step=float(h), method=method, seed=seed).end.points

    exact = end(finest)
    errors = [float((end(h) - exact).square().sum(-1).mean().sqrt()) for h in steps]
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


def weak_order(method: str, activation: str, d: int = 3, radial: bool = False, many: int = 40_000) -> float:
    """Order of E<x_T, x_0> - e^{-(d-1) kappa(1) s^2 T/2} for a single token.

    By symmetry the expectation after T/h steps is c^{T/h}, c that after one; and c comes with few samples from its
    difference to 1 - |P dW|^2/2, whose expectation is known; for a method that does not project (radial) to that
    with |P dW|^2 <x, dW>, too.
    """
    t, scale, seed = 1.0, 0.7, 3
    flow = CommonNoise(activation=activation, scale=scale)
    rate = (d - 1) * flow.covariance.one * scale**2 / 2
    x = torch.zeros(many, 1, d, dtype=torch.float64)
    x[:, :, 0] = 1
    steps, errors = 2.0 ** -np.arange(4, 8), []
    for h in steps:
        end = ms.solve(flow, ms.Ensemble(x), float(h), step=float(h), method=method, seed=seed).end.points
        drawn = Brownian(seed, float(h), flow.abreast(many).noise_sizes(x[:, 0])[0]).increment(0)
        noise = math.sqrt(flow.covariance.one) * scale * drawn[:, 0]
        square = noise[:, 1:].square().sum(-1)
        known = 1 - square / 2 + (square * noise[:, 0] if radial else 0.0)
        contraction = float((end[:, 0, 0] - known).mean()) + 1 - rate * float(h)
        errors.append(abs(contraction ** (t / float(h)) - math.exp(-rate * t)))
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])
