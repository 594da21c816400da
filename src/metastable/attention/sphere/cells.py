"""Sub-quadratic attention on S^2: cells of keys against boxes of queries, with a bound of the error of every row.

With z = beta q, attention is the Laplace transform g(z) = sum_j m_j e^{<z, k_j>} and its logarithmic gradient.
The keys are sorted into a tree of cells with Chebyshev proxies (`sphere.tree`), the queries into an octree of
boxes. For each box, from the top down,
1. attention at its centre gives k̄ and, by Jensen's inequality, a lower bound of every partition in the box;
2. a walk down the key tree drops cells, replaces them by proxies, or keeps their keys, each at a cost that is
   bounded relative to that partition (`sphere.walk`);
3. what is left is summed into one local expansion for all queries of the box, or row by row, whichever is
   cheaper, or the box is split (`sphere.groups`).
The bounds are relative to the row's own partition and hold cell by cell, so that clusters, B != I, duplicate
tokens and large beta do not spoil them: there, cells and boxes adapt, and no token falls back to all keys. The
returned error is that bound, not an estimate from samples; on uniform tokens it is 50 times the true error or more.

Cost: the trees are O(n log n) (about 1 s of CPU time at n = 1e6); the boxes cost O(beta) as long as a cap of
radius 1/sqrt(beta) holds many tokens, and beyond that each query meets the keys of its own cap, n
log(1/rtol)/(2 beta) and a few times more for the shape of cells and boxes. The least favourable case lies
between: uniform tokens with n about 1000 beta. Measured (benchmarks/sphere_attend.py, rtol 1e-6): n = 1e6
uniform tokens cost 0.14, 0.18, 0.3, 0.45, 1.1, 0.8 of the fused direct kernel at n = 1e5 for beta = 1, 16, 64,
256, 1024, 1e4; three clusters with B != I cost 0.10 to 0.16 up to beta = 1024 and 0.65 at 1e4. Memory: O(n).
Values other than the keys share trees, walk and bounds, and cost about one more pass per column (`sphere.values`).
Limits: d = 3, unit keys, float64 on the CPU.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.direct import MAX_COLUMNS
from metastable.attention.operands import Operands
from metastable.attention.sphere.groups import SPLIT, attend_groups
from metastable.attention.sphere.tree import KeyTree, QueryTree, key_tree, query_tree
from metastable.errors import InvalidInput
from metastable.threads import over_rows

ORDERS = np.array([6, 8, 10, 12, 14, 16, 18, 20, 23])
"""Numbers p of proxies per side of a cell that are on offer; the bounds of `sphere.walk` hold up to p = 24."""
_COARSE, _COARSE_ORDERS = 1e-4, 6
"""From this rtol on so many of the numbers are on offer. Moments of all of them take half of the time where few
rows are asked for (1700 of 146,000 on a late bundle of the mean field: 103 ms of 200), and those of six 58 ms;
calls with uniform and clustered tokens, beta = 1 to 2000, take .79 to 1.02 of what they took."""
_LOOSE, _FEW, _LOOSE_ORDERS = 1e-3, 8, 4
"""From this rtol on, and with so many keys for a row, there are fewer still: 2650 rows and 156,000 keys take 52 ms
instead of 86. With as many rows as keys at beta = 16 they would take up to 1.5 times as long."""
_OFF_SPHERE = 1e-6
"""How far lengths of keys may be from one: beyond, it is no rounding, and keys were meant to be elsewhere."""
_ROUNDED = 1e-14
"""How far they are when nothing but rounding moved them."""
_FEW_PAIRS = 400_000_000
"""Pairs, 2e4 squared, up to which the trees of the cells are not worth their cost."""
_MOST_SHARP = 2e4
"""Largest beta |q| for which the cells are chosen; the costs in `cells_cost` were measured up to 1e4, and
twice that is extrapolated."""


def attend_sphere_cells(operands: Operands, rtol: float) -> tuple[Float[Tensor, "q v"], Float[Tensor, "q"], float]:
    """m_i = sum_j m_j e^{beta <q_i, k_j>} v_j/Z_i,   Z_i = sum_j m_j e^{beta <q_i, k_j>},   keys on S^2.

    Returns (mean, log Z, error). Queries are any vectors, keys unit vectors, values any, or the keys. `error`
    bounds |log Z - exact| and |mean - exact|, in lengths of the longest value, of every row; it is at most rtol
    (>= 1e-14) plus rounding, which grows like 1e-15 beta |q|.

    >>> x = torch.eye(3, dtype=torch.float64)
    >>> equal = torch.full((3,), 1 / 3, dtype=torch.float64)
    >>> mean, log_z, error = attend_sphere_cells(Operands(x, x, x, equal, 2.0), 1e-8)
    >>> round(mean[0, 0].item(), 8), round(math.exp(2) / (math.exp(2) + 2), 8), error < 1e-8
    (0.78698604, 0.78698604, True)
    """
    k, m, off_sphere = checked_keys(operands, rtol)
    queries = operands.queries
    values, longest_value = other_values(operands)
    if m.min() <= 0.0:
        values = None if values is None else values[m > 0.0]
        k, m = k[m > 0.0], m[m > 0.0]
    n, d_v = queries.shape[0], operands.values.shape[1]
    if n == 0:
        return queries.new_empty((0, d_v)), queries.new_empty(0), 0.0
    scaled = queries.numpy() * operands.beta
    scale = float(m.max())
    orders = ORDERS[:_COARSE_ORDERS] if rtol >= _COARSE else ORDERS
    if rtol >= _LOOSE and len(k) >= _FEW * n:
        orders = ORDERS[:_LOOSE_ORDERS]
    tree, boxes = key_tree(k, m / scale, orders, values), query_tree(scaled)
    longest = math.sqrt(float(np.einsum("ic,ic->i", scaled, scaled).max()))
    # Proxies lie on the sphere; keys that do not differ from them by what rounding did to their length.
    rounding = 8.0 * np.finfo(np.float64).eps * (64.0 + longest) + longest * off_sphere
    left = rtol - rounding if rounding < 0.75 * rtol else rtol
    sorted_mean, sorted_log_partition, bound = _attend_boxes(tree, boxes, 0.5 * left)
    mean, log_partition = torch.empty((n, d_v), dtype=torch.float64), torch.empty(n, dtype=torch.float64)
    mean.numpy()[boxes.order] = sorted_mean * longest_value
    log_partition.numpy()[boxes.order] = sorted_log_partition + math.log(scale)
    return mean, log_partition, float(2.0 * bound + rounding)


def cells_cost(operands: Operands, rtol: float) -> float:
    """Measured nanoseconds for keys that fill the sphere and B far from a rotation; clusters cost less.

    Never as much as all pairs.
    """
    if operands.pairs <= _FEW_PAIRS or operands.sharpness >= _MOST_SHARP:
        return math.inf
    passes = 1.0 if operands.values_are_keys else 1.0 + 0.5 * operands.values.size(1)
    return min(8000.0 * passes * operands.queries.shape[0] * (1.0 if rtol >= 1e-8 else 3.0), 0.8 * operands.pairs)


def checked_keys(operands: Operands, rtol: float) -> tuple[np.ndarray, np.ndarray, float]:
    """(keys, masses, how far keys of positive mass are off the sphere), or a refusal of what S^2 cannot do."""
    queries, keys, mass = operands.queries, operands.keys, operands.mass
    if queries.ndim != 2 or keys.ndim != 2 or queries.shape[1] != 3 or keys.shape[1] != 3:
        raise InvalidInput(
            f"the cell method on S^2 needs d = 3, got queries {tuple(queries.shape)} and keys {tuple(keys.shape)}"
        )
    if any(x.dtype != torch.float64 or x.device.type != "cpu" for x in (queries, keys, mass)):
        raise InvalidInput(f"the cell method on S^2 runs in float64 on the CPU, got {keys.dtype} on {keys.device}")
    if operands.values.shape[1] > MAX_COLUMNS:
        raise InvalidInput(f"values on S^2 have up to {MAX_COLUMNS} columns, got {operands.values.shape[1]}")
    if not 1e-14 <= rtol < 1.0:
        raise InvalidInput(f"rtol must lie in [1e-14, 1), got {rtol!r}")
    k, m = keys.numpy(), mass.numpy()
    off_sphere = max(abs(math.sqrt(square) - 1.0) for square in operands.squared_keys)
    if off_sphere > _ROUNDED:  # maybe it is keys without mass
        off = np.abs(np.sqrt(np.einsum("jc,jc->j", k, k)) - 1.0)
        off_sphere = float(off.max(initial=0.0, where=m > 0.0))
    if off_sphere > _OFF_SPHERE:
        raise InvalidInput(f"the cell method on S^2 needs unit keys, got a length off by {off_sphere:.1e}")
    return k, m, off_sphere


def other_values(operands: Operands) -> tuple[np.ndarray | None, float]:
    """(values over the length of the longest, that length); (None, 1) where they are the keys."""
    keys, values = operands.keys, operands.values
    if operands.values_are_keys or (values.shape == keys.shape and torch.equal(values, keys)):
        return None, 1.0
    longest = float(torch.linalg.vector_norm(values, dim=1).max())
    longest = longest if longest > 0.0 else 1.0
    return values.numpy() / longest, longest


def _attend_boxes(tree: KeyTree, boxes: QueryTree, tolerance: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Means and log-partitions in the order of the boxes and the largest bound, level by level."""
    n = boxes.points.shape[1]
    mean, log_partition = np.empty((n, 3)), np.empty(n)
    others = np.empty((n, len(tree.weights) - 1))
    level = np.zeros(1, dtype=np.int64)
    most = max(n // 16, 256)
    bound = 0.0
    while len(level):
        status, errors = np.zeros(len(level), dtype=np.int8), np.zeros(len(level))

        def work(
            first: int,
            last: int,
            level: np.ndarray = level,
            status: np.ndarray = status,
            errors: np.ndarray = errors,
        ) -> None:
            part = slice(first, last)
            attend_groups(
                tree, boxes, level[part], tolerance, most, mean, others, log_partition, status[part], errors[part]
            )

        over_rows(work, len(level), cost=1e6 * len(level))
        bound = max(bound, float(errors.max()))
        split = level[status == SPLIT]
        count = boxes.children[split]
        within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        level = np.repeat(boxes.child[split], count) + within
    return others if others.shape[1] else mean, log_partition, bound
