"""Sub-quadratic attention on the circle (d = 2, keys of unit length, any queries, any masses), with a stated error.

With z = beta q, the sum F(z) = sum_j m_j e^{<z, k_j>} and its gradient are smooth on both sides. Keys become
proxies, p per cell (`circle.keys`). Queries are collected in patches; F e^{-<z, u>} is computed at the Chebyshev
nodes of a patch from the proxies that matter there (`circle.patch`) and interpolated: along a curve where the
queries lie on an ellipse, as B^T x for tokens x on the circle (`circle.curve`), otherwise in angle and length
(`circle.plane`). Patches with few queries are not worth their nodes: these queries sum over the proxies themselves.
All sums are positive cell by cell and shifted by <z, u>, so errors are relative, in clusters and gaps, too.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.circle.bounds import WIDER, steepest_key_error
from metastable.attention.circle.curve import attend_ellipse
from metastable.attention.circle.ellipse import ellipse_of
from metastable.attention.circle.keys import COARSEST, gather_keys, summed_together
from metastable.attention.circle.plane import attend_plane
from metastable.attention.operands import Operands, contiguous
from metastable.errors import InvalidInput

FINEST = 17
"""Level of the finest cells that are made; a sharper softmax than they resolve is flagged by the error. One level
more doubles the memory of the weights, 2^18 cells of 16 here: 32 MB."""
SEARCH = 3e5
"""Nanoseconds below which no ellipse of the queries is fitted for a forecast: it takes a third of them, and nothing
that is done again for every call is spared by it."""
MOST_SHARP = 2e4
"""Largest beta |q| for which the cells are chosen; FINEST resolves every score to a tolerance of 1e-10 there."""

OFF_CIRCLE = 1e-6
"""How far squared lengths of keys may be from one: beyond, it is no rounding, and they are elsewhere."""


def attend_circle(operands: Operands, rtol: float) -> tuple[Float[Tensor, "q 2"], Float[Tensor, "q"], float]:
    """(mean, log Z, error) of `attend` in O(n_q + n_k) for unit keys in the plane that are their own values.

    `error` bounds the relative error of Z and the error of the mean (whose values have length one); it exceeds
    `rtol` when the tolerance was not reached, for instance because float32 keys are not quite on the circle.
    """
    operands.require_cpu("circle")
    keys, values, beta, dtype = operands.keys, operands.values, operands.beta, operands.queries.dtype
    if keys.shape[1] != 2 or (values is not keys and not torch.equal(values, keys)):
        raise InvalidInput('kernel="circle" needs keys in the plane (d = 2) that are their own values')
    k, m, q = (contiguous(x.double()) for x in (keys, operands.mass, operands.queries))
    scale = float(m.max())
    m = m / scale if not 1e-100 < scale < 1e100 else m
    ellipse = operands.once(ellipse_of)
    sharpest = beta * ellipse.longest if ellipse is not None else operands.sharpness
    p = 8 if rtol >= 1e-6 else 16
    found, off_circle = gather_keys(k, m, finest_level(sharpest, p, rtol), p)
    if off_circle > OFF_CIRCLE:
        raise InvalidInput(
            f"kernel=\"circle\" needs unit keys, got a squared length off by {off_circle:.1e}; use kernel='auto'"
        )
    result = attend_ellipse(found, q, beta, ellipse, rtol) if ellipse is not None else None
    if result is None:
        sharpest = operands.sharpness
        level = finest_level(sharpest, p, rtol)
        if level > found.finest:
            found, off_circle = gather_keys(k, m, level, p)
        result = attend_plane(found, q, beta, sharpest, rtol)
    mean, log_partition, error = result
    if not 1e-100 < scale < 1e100:
        log_partition += math.log(scale)
    together = summed_together(found.finest)
    additions = min(len(k), together) + len(k) / together
    error += (1.0 + sharpest) * off_circle + 4e-16 * (4.0 + sharpest) + 1.2e-16 * additions
    if dtype == torch.float32:
        error += 1.2e-7 * (1.0 + float(np.abs(log_partition).max(initial=0.0)))
    return torch.from_numpy(mean).to(dtype), torch.from_numpy(log_partition).to(dtype), error


def circle_cost(operands: Operands, rtol: float) -> float:
    """Measured nanoseconds: keys, queries and patches, and key cells merged."""
    n_q, n_k, sharpest = operands.queries.shape[0], operands.keys.shape[0], operands.sharpness
    # The rounding of the queries themselves moves scores by |z| eps, several of which must fit into the tolerance.
    if sharpest >= min(MOST_SHARP, rtol / 3e-15):
        return math.inf
    patches = min(16.0 * sharpest**0.5, 2048.0, n_q)
    cost = 4e5 + 12.0 * n_k + 20.0 * n_q + 15_000.0 * patches + 1600.0 * sharpest
    if cost <= 0.7 * operands.pairs and operands.once(ellipse_of) is None:
        # Patches in angle and length: most queries are in one with fewer queries than nodes.
        cost += 3000.0 * n_q
    return cost


def finest_level(sharpest: float, p: int, rtol: float) -> int:
    """Level whose cells are interpolated by p nodes to a fifth of rtol even where the score is steepest."""
    level = COARSEST + 1
    while level < FINEST and steepest_key_error(WIDER * 4.0 / 2**level, sharpest, p) > 0.2 * rtol:
        level += 1
    return level
