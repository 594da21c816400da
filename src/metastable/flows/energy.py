"""The interaction energy of attention, E = (1/2 beta) sum_ij m_i m_j e^{beta <x_i, B x_j>}."""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import flag, instance, shown
from metastable.attention.attend import attend_unchecked, check_kernel
from metastable.attention.inputs import as_floating, read_beta, read_mass
from metastable.attention.lengths import all_finite
from metastable.errors import InvalidInput, NoEnergy
from metastable.weights import AttentionWeights


def interaction_energy(
    points: Float[Tensor, "n d"],
    mass: Float[Tensor, "n"],
    weights: AttentionWeights,
    beta: float,
    *,
    log: bool = False,
    kernel: str = "auto",
) -> float:
    """E = (1/2 beta) sum_ij m_i m_j e^{beta <x_i, B x_j>}, or its logarithm, which never overflows.

    At beta = 0 the constant 1/(2 beta) is dropped and E is the limit of the rest, (1/2) sum m_i m_j <x_i, B x_j>.
    Source: [arXiv:2312.10794]; n tokens of equal mass have m_i = 1/n.
    """
    instance(weights, "weights", AttentionWeights, "AttentionWeights")
    points = as_floating(points, "points")
    if points.ndim != 2 or 0 in points.shape or points.shape[1] != weights.d or not all_finite(points):
        raise InvalidInput(f"points must be finite and of shape (n, {weights.d}), got {shown(points)}")
    mass, beta, log = read_mass(mass, points).to(points.dtype), read_beta(beta), flag(log, "log")
    check_kernel(kernel, None)
    w = weights.to(device=points.device, dtype=points.dtype)
    if beta == 0:
        if log:
            raise InvalidInput("the logarithm of the energy needs beta > 0, got 0")
        centre = mass @ points
        return float(w.queries(centre[None]) @ w.keys(centre[None]).T) / 2
    keys = w.keys(points)
    log_z = attend_unchecked(w.queries(points), keys, keys, mass, beta, kernel=kernel).log_partition
    log_energy = float(torch.logsumexp(torch.log(mass) + log_z, dim=0)) - math.log(2 * beta)
    if log:
        return log_energy
    if not log_energy <= 709:
        raise InvalidInput(
            f"the energy overflows at beta = {beta:g} (its logarithm is {log_energy:.6g}); use "
            "observe.interaction_energy(..., log=True)"
        )
    return math.exp(log_energy)


def require_gradient_structure(weights: AttentionWeights) -> float:
    """The factor c of V = c B with B symmetric, the condition under which E is monotone; `NoEnergy` otherwise."""
    B, V = weights.B, weights.V
    scale = float(B.abs().max())
    if scale == 0 or float((B - B.T).abs().max()) > 1e-10 * scale:
        raise NoEnergy("the energy needs a symmetric, non-zero B, and this B is not")
    c = float((V * B).sum() / (B * B).sum())
    if c == 0 or float((V - c * B).abs().max()) > 1e-10 * abs(c) * scale:
        raise NoEnergy("the energy needs V to be a multiple of B, and this V is not")
    return c
