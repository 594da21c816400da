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

from metastable.attention.circle.curve import attend_ellipse, fit_ellipse
from metastable.attention.circle.keys import COARSEST, gather_keys
from metastable.attention.circle.patch import steepest_key_error
from metastable.attention.circle.plane import attend_plane
from metastable.attention.direct.fused import contiguous
from metastable.errors import InvalidInput

FINEST = 17
"""Level of the finest cells that are made; a sharper softmax than they resolve is flagged by the error."""


def attend_circle(
    queries: Float[Tensor, "q 2"],
    keys: Float[Tensor, "k 2"],
    values: Float[Tensor, "k 2"],
    mass: Float[Tensor, "k"],
    beta: float,
    rtol: float,
) -> tuple[Float[Tensor, "q 2"], Float[Tensor, "q"], float]:
    """(mean, log Z, error) of `attend` in O(n_q + n_k) for unit keys in the plane that are their own values.

    `error` bounds the relative error of Z and the error of the mean (whose values have length one); it exceeds
    `rtol` when the tolerance was not reached, for instance because the keys are not on the circle.
    """
    if keys.shape[1] != 2 or (values is not keys and not torch.equal(values, keys)):
        raise InvalidInput('kernel="circle" needs keys in the plane (d = 2) that are their own values')
    k, m, q = (contiguous(x.double()) for x in (keys, mass, queries))
    scale = float(m.max())
    m = m / scale if not 1e-100 < scale < 1e100 else m
    ellipse = fit_ellipse(q)
    sharpest = beta * (ellipse.longest if ellipse is not None else longest(q))
    p = 8 if rtol >= 1e-6 else 16
    found, off_circle = gather_keys(k, m, finest_level(sharpest, p, rtol), p)
    result = attend_ellipse(found, q, beta, ellipse, rtol) if ellipse is not None else None
    if result is None:
        sharpest = beta * longest(q)
        level = finest_level(sharpest, p, rtol)
        if level > found.finest:
            found, off_circle = gather_keys(k, m, level, p)
        result = attend_plane(found, q, beta, sharpest, rtol)
    mean, log_partition, error = result
    if not 1e-100 < scale < 1e100:
        log_partition += math.log(scale)
    error += sharpest * off_circle + 4e-16 * (4.0 + sharpest)
    out = torch.from_numpy(mean).to(queries.dtype), torch.from_numpy(log_partition).to(queries.dtype)
    if queries.dtype == torch.float32:
        error += 1.2e-7 * (1.0 + sharpest)
    return *out, error


def longest(points: np.ndarray) -> float:
    """Length of the longest row."""
    return math.sqrt(float(np.einsum("ij,ij->i", points, points).max(initial=0.0)))


def finest_level(sharpest: float, p: int, rtol: float) -> int:
    """Level whose cells are interpolated by p nodes to a fifth of rtol even where the score is steepest."""
    level = COARSEST + 1
    while level < FINEST and steepest_key_error(1.08 * 4.0 / 2**level, sharpest, p) > 0.2 * rtol:
        level += 1
    return level
