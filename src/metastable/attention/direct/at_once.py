"""`attend_at_once`: the look at all tokens and the two products of `products`, in one compiled call.

With a hundred tokens in 32 dimensions the products take ten microseconds, and to read the arguments, to find out
what kernels must know of them and to choose one takes several times as long.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from numba import njit
from torch import Tensor

from metastable.attention.direct.matrix_product import kept_room, product_address
from metastable.attention.direct.products import (
    LARGEST_SCORE,
    MOST_MASS_RATIO,
    block_rows,
    every_score_once,
    mirrored_rows,
    products_cost,
    rows_of_block,
    rows_of_half,
    upper_rows,
)
from metastable.attention.exp2 import LOG2_E
from metastable.attention.operands import same_tensor
from metastable.threads import shared_among_threads

_FINITE: Any = {"reassoc": True, "nsz": True, "contract": True}
"""Flags for sums that must show a NaN."""


def attend_at_once(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, beta: float
) -> tuple[Tensor, Tensor] | None:
    """(mean, log Z) of the kernel "products", with its digits, by one thread; None where that is not so simple.

    The tensors are float64 in C order on the CPU, of shapes that match. None where a number is not finite, a mass
    is not positive, scores are so large that rows are shifted, or several threads would share the work.
    """
    (n, d), (n_k, d_v) = queries.shape, values.shape
    if shared_among_threads(products_cost(n, n_k, d + d_v)):
        return None
    once = every_score_once(n, d) and same_tensor(queries, keys)
    rows, half = rows_of_block(n_k, d), rows_of_half(n)
    height = n if once else max(1, min(rows, n))
    scores, scaled = _lines(height * n_k), _lines((half if once else height) * d)
    shares = _lines(n_k)
    memory = kept_room(scores + scaled + shares + n_k * d_v)
    of_scores, of_queries, rest = memory[:scores], memory[scores : scores + scaled], memory[scores + scaled :]
    mean, log_partition = torch.empty((n, d_v), dtype=torch.float64), torch.empty(n, dtype=torch.float64)
    made = _at_once(
        product_address(), queries.numpy(), keys.numpy(), values.numpy(), mass.numpy(), beta, once, rows, height,
        half, of_scores, of_queries, rest[:n_k], rest[shares:], mean.numpy(), log_partition.numpy(),
    )  # fmt: skip
    return (mean, log_partition) if made else None


def _lines(size: int) -> int:
    """So many numbers or a few more, so that what follows them begins at a line of the cache."""
    return -(-size // 8) * 8


@njit(nogil=True, cache=True, fastmath=_FINITE, error_model="numpy")
def _squares(points: Any) -> tuple[float, float]:
    """max_i |x_i|^2 and the sum of them, which is finite only if all numbers are."""
    largest, total = 0.0, 0.0
    for i in range(len(points)):
        square = 0.0
        for c in range(points.shape[1]):
            square += points[i, c] * points[i, c]
        largest = square if square > largest else largest
        total += square
    return largest, total


@njit(nogil=True, cache=True, error_model="numpy")
def _at_once(
    address: int, queries: Any, keys: Any, values: Any, mass: Any, beta: float, once: bool, rows: int, height: int,
    half: int, scores: Any, scaled: Any, share: Any, weighted: Any, mean: Any, log_partition: Any,
) -> bool:  # fmt: skip
    """Fill mean and log Z; False where that is not so simple."""
    n, d, n_k, d_v = queries.shape[0], queries.shape[1], values.shape[0], values.shape[1]
    longest, total = _squares(keys)
    if once:
        of_queries = longest
    else:
        of_queries, sum_of_queries = _squares(queries)
        total += sum_of_queries
    if values.ctypes.data != keys.ctypes.data or d_v != d:
        total += _squares(values)[1]
    least, largest, total_mass = math.inf, 0.0, 0.0
    for j in range(n_k):
        least = mass[j] if mass[j] < least else least
        largest = mass[j] if mass[j] > largest else largest
        total_mass += mass[j]
    if not (total < math.inf and total_mass < math.inf and least > 0.0 and least > largest / MOST_MASS_RATIO):
        return False
    if not beta * math.sqrt(of_queries * longest) <= LARGEST_SCORE:
        return False
    scale, log_mass, taken = beta * LOG2_E, math.log(largest), values
    for j in range(n_k):
        share[j] = mass[j] / largest
    if least < largest:
        taken = weighted.reshape((n_k, d_v))
        for j in range(n_k):
            for c in range(d_v):
                taken[j, c] = values[j, c] * share[j]
    if once:
        all_scores = scores[: n * n].reshape((n, n))
        upper_rows(address, 0, n, keys, scale, scaled[: half * d].reshape((half, d)), all_scores)
        mirrored_rows(address, 0, n, all_scores, taken, share, rows, mean, log_partition, log_mass)
    else:
        some, block = scaled[: height * d].reshape((height, d)), scores[: height * n_k].reshape((height, n_k))
        block_rows(
            address, 0, n, queries, keys, taken, share, scale, False, some, block, mean, log_partition, log_mass
        )
    return True
