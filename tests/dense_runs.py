"""Attention flows and their Runge-Kutta steps as plain dense torch, which torch itself can differentiate."""

import math

import torch

import metastable as ms
from metastable.solve import Observer


class StepTimes(Observer):
    """The times of the accepted steps of a run."""

    def __init__(self):
        self.times = []

    def step(self, step):
        self.times.append((step.start.t, step.t))


def step_times(flow, points, t, **options):
    """[(start, end), ...] of the run that `solve` makes."""
    seen = StepTimes()
    ms.solve(flow, points, t, observers=[seen], **options)
    return seen.times


def attended(x, mass, B, beta, *, field=None, log_scale=None, alibi=None, include_self=True):
    """sum_j p_ij x_j of softmax attention, or of unnormalised attention with that log_scale; alibi: causal."""
    n = len(x)
    scores = beta * (x @ B) @ x.T + torch.log(mass)
    if field is not None:
        scores = scores + x @ field
    seen = torch.zeros(n, dtype=x.dtype)
    if alibi is not None:
        place = torch.arange(n, dtype=x.dtype)
        hidden = place > place[:, None] if include_self else place >= place[:, None]
        slope = -alibi / n * (place[:, None] - place)
        scores = (scores + slope).masked_fill(hidden, -1e300)
        seen = torch.logsumexp((torch.log(mass) + slope).masked_fill(hidden, -1e300), 1)
    shown = seen > -1e299
    if log_scale is None:
        return torch.softmax(scores, 1) @ x * shown[:, None]
    return torch.exp(scores - seen[:, None] * shown[:, None] - log_scale).masked_fill(scores < -1e299, 0.0) @ x


def run(velocity, x, times, table, *, spherical=True):
    """The steps at these times by a Runge-Kutta table; velocity(t, x), t before its projection."""

    def unit(z):
        return z / z.norm(dim=1, keepdim=True) if spherical else z

    def slope(t, y):
        F = velocity(t, y)
        return F - (y * F).sum(1, keepdim=True) * y if spherical else F

    for start, end in times:
        h, slopes = end - start, []
        for node, row in zip(table.nodes, table.stages, strict=True):
            moved = x + h * sum((a * k for a, k in zip(row.tolist(), slopes, strict=True)), torch.zeros_like(x))
            slopes.append(slope(start + node * h, unit(moved)))
        x = unit(x + h * sum(b * k for b, k in zip(table.weights.tolist(), slopes, strict=True)))
    return x


def normal(*shape, seed=0, scale=1.0):
    """Gaussian numbers from a seed."""
    return scale * torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def relative(found, expected):
    """Largest difference relative to the largest number."""
    found, expected = (torch.as_tensor(a, dtype=torch.float64) for a in (found, expected))
    return float((found - expected).abs().max()) / max(float(expected.abs().max()), math.ulp(1.0))
