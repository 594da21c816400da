"""The transpose of the derivative of attention over all pairs, as backpropagation needs it, in O(n d) memory.

With weights p_ij = m_j e^{<q_i, y_j>}/Z_i and cotangents g_i of sum_j p_ij y_j, minus s_i of log Z_i:

    by_query_i = sum_j p_ij (<g_i, y_j> - s_i) y_j,      by_key_j = sum_i p_ij (g_i + (<g_i, y_j> - s_i) q_i).

The weights are recomputed from log Z, so that no score exceeds it, no maximum is looked for and nothing of size
n x n is kept. Up to `MOST_FUSED` coordinates on the CPU one compiled pass serves both sums: a few rows meet a block
of keys eight at a time (`direct.adjoint_lanes`). With more it is matrix products (`direct.adjoint_products`), on a
GPU five of them for every block of rows. Queries come scaled by beta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from metastable.attention.backwards import Backwards
from metastable.attention.direct.adjoint_lanes import group_kernel, numbers_of_a_row, rows_at_once
from metastable.attention.direct.adjoint_products import ABSENT, PIECES, adjoint_by_products
from metastable.attention.direct.fused import aligned_zeros
from metastable.attention.direct.processor import WIDE_LIBRARIES
from metastable.attention.exp2 import LOG2_E, NO_REASSOCIATION, wide
from metastable.attention.lanes import LANES
from metastable.attention.lasting import lasting
from metastable.threads import over_rows

MOST_FUSED = 4 if WIDE_LIBRARIES else 7
"""Coordinates up to which the compiled loop is taken: on a Zen 5 1.06 nanoseconds a pair against 1.75 of products
in five dimensions, 1.2 against 1.8 in six, 1.64 against 1.83 in eight, from where on steps are made by products
as wholes. An earlier form took 9.2 ms for 2000 tokens in five dimensions on a Xeon, products 9.4."""
_ROWS = 64
"""Rows that meet a block of keys one after the other, as in `fused`."""
_BLOCK = 1040
"""Keys of a block at most, as in `fused`: d + 1 columns of them and as many sums stay in the second cache."""
_SCORES = 1 << 17
"""Scores that a block of rows holds at once, 1 MB, of which there are two: within the second cache."""
_LEAST_ROWS = 32
"""Rows of a block at least, so that a product of many keys is one of matrices."""


def adjoint_over_pairs(
    given: Backwards, ahead: int | None = None
) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n d"]]:
    """(by_query, by_key), in float64. ahead: row i sees the keys below i + ahead, None for all of them."""
    keys = given.keys
    few = keys.shape[1] <= MOST_FUSED
    way = (_fused if few else adjoint_by_products) if keys.is_cpu else _blocks
    return way(given.double(), len(keys) if ahead is None else ahead)


def adjoint_cost(n: int, d: int) -> float:
    """Rough nanoseconds of one older core for all pairs: 1.6 to 2.6 times those of the fused kernel."""
    return (0.75 + 0.23 * d) * n**2


def _fused(given: Backwards, ahead: int) -> tuple[Tensor, Tensor]:
    """The same by the compiled loop."""
    queries, keys, log_mass, log_partition, cotangent, shift, _ = given
    q, g, s = (np.ascontiguousarray(a.numpy()) for a in (queries, cotangent, shift))
    rows, (n, d) = len(q), keys.shape
    exponent = np.maximum(log_mass.numpy() * LOG2_E, -ABSENT)
    total = log_partition.numpy() * LOG2_E
    total = np.where(total == -math.inf, ABSENT, total)
    block = min(_BLOCK, -(-n // 16) * 16)
    blocks, pieces = -(-n // block), min(PIECES, -(-rows // _ROWS))
    packed, sums = aligned_zeros(q.dtype, (blocks, d + 1, block), (pieces, blocks, d, block))
    columns = np.zeros((d + 1, blocks * block))
    columns[:d, :n], columns[d, :n] = keys.numpy().T, exponent
    packed[:] = columns.reshape(d + 1, blocks, block).swapaxes(0, 1)
    by_query = np.zeros((rows, d))
    edges = [rows * piece // pieces for piece in range(pieces + 1)]
    kernel = adjoint_kernel(d)

    def some_pieces(start: int, stop: int) -> None:
        for piece in range(start, stop):
            part = edges[piece], edges[piece + 1]
            kernel(q, packed, n, ahead, total, g, s, *part, by_query, sums[piece])

    over_rows(some_pieces, pieces, cost=adjoint_cost(n, d) * rows / n)
    by_key = sums.sum(0).swapaxes(0, 1).reshape(d, blocks * block)[:, :n]
    return torch.from_numpy(by_query), torch.from_numpy(np.ascontiguousarray(by_key.T))


@cache
def adjoint_kernel(d: int) -> Callable[..., None]:
    """The compiled loop for one dimension; kept on disk.

    keys (blocks, d + 1, n) and by_key (blocks, d, n), n a multiple of eight, are what `group_kernel` takes.
    """
    add, at_once, numbers = group_kernel(d), rows_at_once(d), numbers_of_a_row(d)

    # Flags of its own, which keep those of a caller away: reassociation would undo the roundings of exponentials.
    @njit(fastmath=NO_REASSOCIATION, nogil=True, cache=True, error_model="numpy")
    def kernel(
        queries: Any,
        keys: Any,
        n: int,
        ahead: int,
        log_partition: Any,
        cotangent: Any,
        shift: Any,
        start: int,
        stop: int,
        by_query: Any,
        by_key: Any,
    ) -> None:
        wide()
        block = keys.shape[2]
        rows, seen, sums = np.empty((at_once, numbers)), np.empty(at_once, np.int64), np.empty((at_once, d, LANES))
        for first in range(start, stop, _ROWS):
            last = min(first + _ROWS, stop)
            for b in range(keys.shape[0]):
                for i in range(first, last, at_once):
                    shortest, longest = block, 0
                    for a in range(at_once):
                        row = min(i + a, last - 1)
                        seen[a] = max(min(block, min(n, row + ahead) - b * block), 0) if i + a < last else 0
                        shortest, longest = min(shortest, seen[a]), max(longest, seen[a])
                        for c in range(d):
                            rows[a, c] = queries[row, c] * LOG2_E
                            rows[a, d + c] = cotangent[row, c]
                            rows[a, 2 * d + c] = queries[row, c]
                        rows[a, 3 * d], rows[a, 3 * d + 1] = -log_partition[row], -shift[row]
                    if longest == 0:
                        continue
                    add(keys, by_key, b, shortest // LANES * LANES, longest, rows, seen, sums)
                    for a in range(min(at_once, last - i)):
                        for c in range(d):
                            total = 0.0
                            for place in range(LANES):
                                total += sums[a, c, place]
                            by_query[i + a, c] += total

    return lasting(kernel, f"adjoint {d}")


def _blocks(given: Backwards, ahead: int) -> tuple[Tensor, Tensor]:
    """The same by blocks of rows, for any number of coordinates and any device."""
    queries, keys, log_mass, log_partition, cotangent, shift, _ = given
    n, one = len(keys), torch.ones_like(shift)[:, None]
    total = torch.where(log_partition == -math.inf, ABSENT, log_partition)
    mass = log_mass.clamp(min=-ABSENT)
    # Masses, partitions and shifts are columns of the products, which spares a pass over the pairs for each.
    of_queries = torch.cat([queries, one, -total[:, None]], dim=1)
    of_keys = torch.cat([keys, mass[:, None], one], dim=1).T
    of_cotangent, beside = torch.cat([cotangent, -shift[:, None]], dim=1), torch.cat([keys, one], dim=1).T
    by_query, by_key = torch.zeros_like(queries), torch.zeros_like(keys)
    rows = min(n, max(_LEAST_ROWS, _SCORES // n))
    room = torch.empty((2, rows * n), dtype=keys.dtype, device=keys.device)
    for start in range(0, n, rows):
        here = slice(start, min(start + rows, n))
        height, seen = here.stop - start, min(n, here.stop - 1 + ahead)
        if seen <= 0:
            continue
        weights, change = (part[: height * seen].view(height, seen) for part in room)
        torch.mm(of_queries[here], of_keys[:, :seen], out=weights).exp_()
        if ahead < n:
            weights[:, start:].tril_(ahead - 1)
        torch.mm(of_cotangent[here], beside[:, :seen], out=change).mul_(weights)
        torch.mm(change, keys[:seen], out=by_query[here])
        by_key[:seen].addmm_(weights.T, cotangent[here]).addmm_(change.T, queries[here])
    return by_query, by_key
