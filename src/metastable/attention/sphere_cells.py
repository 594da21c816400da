"""Sub-quadratic attention on S^2."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.sphere_groups import SPLIT, attend_groups
from metastable.attention.sphere_tree import key_tree, query_tree
from metastable.attention.threads import over_rows
from metastable.errors import InvalidInput


def attend_sphere_cells(
    queries: Float[Tensor, "q 3"],
    keys: Float[Tensor, "k 3"],
    values: Float[Tensor, "k 3"],
    mass: Float[Tensor, "k"],
    beta: float,
    rtol: float,
) -> tuple[Float[Tensor, "q 3"], Float[Tensor, "q"], float]:
    k, m = keys.numpy(), mass.numpy()
    if (m <= 0.0).any():
        k, m = k[m > 0.0], m[m > 0.0]
    scale = float(m.max())
    length = np.sqrt((k * k).sum(axis=1))
    off_sphere = float(np.abs(length - 1.0).max())
    tree = key_tree(k, m / scale, np.array([6, 8, 11, 14, 18] if rtol > 1e-8 else [6, 8, 11, 14, 18, 23]))
    scaled = queries.numpy() * beta
    boxes = query_tree(scaled)
    n = scaled.shape[0]
    mean, log_partition = np.empty((n, 3)), np.empty(n)
    frontier = np.zeros(1, dtype=np.int64)
    error = 0.0
    most = max(n // 16, 256)
    while len(frontier):
        frontier = frontier[np.argsort(np.arange(len(frontier)) * 0.6180339887 % 1.0)]
        status, errors = np.empty(len(frontier), dtype=np.int8), np.zeros(len(frontier))

        def work(first: int, last: int) -> None:
            attend_groups(
                tree, boxes, frontier[first:last], rtol, most, mean, log_partition, status[first:last], errors[first:last]
            )

        over_rows(work, len(frontier), cost=1e6 * len(frontier))
        error = max(error, float(errors.max()))
        split = frontier[status == SPLIT]
        counts = boxes.children[split]
        offsets = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        frontier = np.repeat(boxes.child[split], counts) + offsets
    out_mean, out_log = torch.empty((n, 3), dtype=torch.float64), torch.empty(n, dtype=torch.float64)
    order = torch.from_numpy(boxes.order)
    out_mean[order] = torch.from_numpy(mean)
    out_log[order] = torch.from_numpy(log_partition) + math.log(scale)
    longest = float(np.sqrt((scaled * scaled).sum(axis=1)).max())
    rounding = 8.0 * np.finfo(np.float64).eps * (16.0 + longest)
    return out_mean, out_log, 2.0 * error + rounding + longest * off_sphere
