"""How the experiments of this paper run laws that are symmetric about an axis, and what they read off them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special

from metastable.flows import AxisymmetricAttention
from metastable.meanfield import axial_disorder, axisymmetric_nodes
from metastable.measure import Measure
from metastable.papers.reading import slope
from metastable.solve import Path, solve

RTOL = 1e-7
"""Tolerance of the runs: what 1 - R loses by it is a share of 1e-7, measured against a run at 1e-10."""
START = 0.5
"""Shift of the density from which runs start, unless said otherwise: R = 0.245 on the circle."""


def run(
    d: int,
    beta: float,
    times: np.ndarray,
    normalized: bool = True,
    rho0: Measure | None = None,
    bumps: Any = ((1.0, START),),
    reach: float = 20.0,
) -> Path:
    """The mean field in dimension d from a mixture of Moebius images, or from tokens that are given."""
    start = axisymmetric_nodes(d, bumps, reach) if rho0 is None else rho0
    flow = AxisymmetricAttention(d, beta, normalized)
    return solve(flow, start, float(times[-1]), times, rtol=RTOL, atol=RTOL / 100)


def disorder(d: int, beta: float, times: np.ndarray, normalized: bool = True) -> np.ndarray:
    """1 - R at the times, from the density of shift START."""
    return axial_disorder(run(d, beta, times, normalized)).numpy()


def quantile_tokens(n: int, d: int) -> Measure:
    """n tokens of equal mass at the quantiles of the law of shift START, as overlaps with the axis."""
    a = (d - 1) / 2
    share = special.betaincinv(a, a, (np.arange(n) + 0.5) / n)
    y = 0.5 * special.logit(share) + START
    return Measure(np.stack([np.tanh(y), 1 / np.cosh(y)], axis=1))


def late_rate(times: np.ndarray, values: np.ndarray, window: Sequence[float]) -> float:
    """Minus the slope of log values where they lie in the window."""
    inside = (values < window[1]) & (values > window[0])
    return -slope(times[inside], np.log(values[inside]))
