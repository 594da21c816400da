"""What of a function on S^2 falls between the nodes of a quadrature: its integral by another rule, and its spikes.

A function is known only where it is asked. It is asked at 2^19 Fibonacci points, no place farther than .0033 from
one of them. Where they see more than the nodes do, the top is climbed and the mass about it is integrated in polar
coordinates that are logarithmic in the radius. A spike that vanishes .0033 from its top is seen by nobody: such a
law is a `Mixture` with parts whose places are known.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.meanfield.law import Law, checked_density

PROBES = 2**19
"""Fibonacci points at which a function is asked: a tenth of a second, and neighbours at .005."""
HIGHER, DIFFERENT = 2.0, 1e-3
"""Nodes of a law that they resolve come within a few percent of its top, and their integral agrees with that of the
probes to 1e-8 (jumps: 3e-4); more than this says that they do not see it."""
BROAD = 0.999
"""Share of the sphere that is not a spike: what is higher than there is the spike."""


def integral_and_spike(law: Law, highest: float, total: float) -> tuple[float, float]:
    """(integral of a function on S^2, share of it in a spike) beside nodes with values up to `highest` that sum to
    `total`; where the probes agree with the nodes these are `total` and 0.

    >>> from metastable.meanfield import Density, VonMisesFisher
    >>> spike = VonMisesFisher([0.0, 0.6, 0.8], 1e6)
    >>> [round(x, 6) for x in integral_and_spike(Density(lambda x: 0.7 + 0.3 * spike(x), 3), 0.7, 0.7)]
    [1.0, 0.3]
    """
    probes = sphere.fibonacci(PROBES)
    values = checked_density(law, probes)
    mean = float(values.mean())
    if abs(mean - total) <= DIFFERENT * total and float(values.max()) <= HIGHER * highest:
        return total, 0.0
    top = int(values.argmax())
    peak = _climbed(law, probes[top], float(values[top]), 4 / math.sqrt(PROBES))
    level = float(torch.sort(values).values[int(BROAD * PROBES)])
    log_radius = torch.linspace(math.log(1e-10), math.log(0.3), 601, dtype=torch.float64)
    step = float(log_radius[1] - log_radius[0])
    radius = torch.exp(log_radius)
    points = _around(peak, radius.repeat_interleave(16), 2 * math.pi * torch.arange(16).repeat(601) / 16)
    excess = (checked_density(law, points).reshape(601, 16).mean(dim=1) - level).clamp(min=0.0)
    # sigma = sin r dr dphi / (4 pi), dr = r d(log r)
    spike = float((excess * torch.sin(radius) * radius).sum()) * step / 2
    whole = spike + float(values.clamp(max=level).mean())
    return whole, spike / whole


def _climbed(law: Law, peak: Tensor, height: float, radius: float) -> Tensor:
    """The top of the spike: the best of 64 places about the best so far, nearer when none is better."""
    spread = torch.linspace(0.05, 1, 64, dtype=torch.float64)
    angle = torch.arange(64, dtype=torch.float64) * (math.pi * (3 - math.sqrt(5)))
    while radius > 1e-9:
        points = _around(peak, radius * spread, angle)
        values = checked_density(law, points)
        best = int(values.argmax())
        if float(values[best]) > height:
            peak, height = points[best], float(values[best])
        else:
            radius /= 2
    return peak


def _around(peak: Tensor, radius: Tensor, angle: Tensor) -> Tensor:
    """Points at the geodesic distances and in the directions from the peak."""
    axis = peak.numpy()
    basis = np.linalg.qr(np.column_stack([axis, np.eye(3)[:, np.argsort(np.abs(axis))[:2]]]))[0]
    one, two = torch.from_numpy(basis[:, 1].copy()), torch.from_numpy(basis[:, 2].copy())
    side = torch.cos(angle)[:, None] * one + torch.sin(angle)[:, None] * two
    return torch.cos(radius)[:, None] * peak + torch.sin(radius)[:, None] * side
