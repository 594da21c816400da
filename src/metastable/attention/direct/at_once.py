"""`attend_at_once`: the look at all tokens and the two products of `products`, in one compiled call.

With a hundred tokens in 32 dimensions the products take twenty microseconds, and to read the arguments, to find out
what kernels must know of them and to choose one takes several times as long. Compiled code gets addresses: an array
of numpy for each tensor, and the memory cut into pieces, took as long as one of the products.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from numba import carray, njit
from torch import Tensor

from metastable.attention.direct.matrix_product import kept_place, product_address
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
from metastable.attention.direct.wide_product import pointer
from metastable.attention.exp2 import LOG2_E
from metastable.attention.operands import same_tensor
from metastable.threads import shared_among_threads

_FINITE: Any = {"reassoc": True, "nsz": True, "contract": True}
"""Flags for sums that must show a NaN."""


class _Plan(NamedTuple):
    """How tokens of one shape are attended to."""

    cost: float
    """Nanoseconds, for the choice of threads."""
    once: bool
    """Whether every score is computed once."""
    rows: int
    """Rows that meet all keys at a time."""
    height: int
    """Rows of scores that are held."""
    scaled: int
    """Rows of queries times beta log2(e) that are held."""
    size: int
    """Numbers of all memory in between."""


@lru_cache(maxsize=1024)
def _plan(n: int, n_k: int, d: int, d_v: int, same: bool) -> _Plan:
    once, rows = same and every_score_once(n, d), rows_of_block(n_k, d)
    height = n if once else max(1, min(rows, n))
    scaled = rows_of_half(n) if once else height
    size = _lines(height * n_k) + _lines(scaled * d) + _lines(n_k) + n_k * d_v
    return _Plan(products_cost(n, n_k, d + d_v), once, rows, height, scaled, size)


def attend_at_once(
    queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor | None, beta: float
) -> tuple[Tensor, Tensor] | None:
    """(mean, log Z) of the kernel "products", with its digits, by one thread; None where that is not so simple.

    The tensors are float64 in C order on the CPU, of shapes that match; no masses are 1/n_k each. None where a
    number is not finite, a mass is not positive, scores are so large that rows are shifted, or several threads
    would share the work.
    """
    (n, d), (n_k, d_v) = queries.shape, values.shape
    plan = _plan(n, n_k, d, d_v, keys is queries or same_tensor(queries, keys))
    if shared_among_threads(plan.cost):
        return None
    # In the shape of something is half the time of a shape.
    mean = torch.empty_like(values) if n == n_k else values.new_empty((n, d_v))
    log_partition = values.new_empty(n)
    memory, place = kept_place(plan.size)
    made = _at_once(
        product_address(), n, d, n_k, d_v, queries.data_ptr(), keys.data_ptr(), values.data_ptr(),
        0 if mass is None else mass.data_ptr(), beta, plan.once, plan.rows, plan.height, plan.scaled, place,
        mean.data_ptr(), log_partition.data_ptr(),
    )  # fmt: skip
    del memory  # which was to live until here
    return (mean, log_partition) if made else None


@njit(nogil=True, cache=True)
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
    address: int, n: int, d: int, n_k: int, d_v: int, of_queries: int, of_keys: int, of_values: int, of_mass: int,
    beta: float, once: bool, rows: int, height: int, few: int, memory: int, of_mean: int, of_log: int,
) -> bool:  # fmt: skip
    """Fill mean and log Z, all by their addresses; False where that is not so simple."""
    queries, keys = carray(pointer(of_queries), (n, d)), carray(pointer(of_keys), (n_k, d))
    values = carray(pointer(of_values), (n_k, d_v))
    longest, total = _squares(keys)
    longest_query = longest
    if of_queries != of_keys or n != n_k:
        longest_query, sum_of_queries = _squares(queries)
        total += sum_of_queries
    if of_values != of_keys or d_v != d:
        total += _squares(values)[1]
    least, largest, total_mass = 1.0 / n_k, 1.0 / n_k, 1.0
    if of_mass != 0:
        mass = carray(pointer(of_mass), (n_k,))
        least, largest, total_mass = math.inf, 0.0, 0.0
        for j in range(n_k):
            least = mass[j] if mass[j] < least else least
            largest = mass[j] if mass[j] > largest else largest
            total_mass += mass[j]
    if not (total < math.inf and total_mass < math.inf and least > 0.0 and least > largest / MOST_MASS_RATIO):
        return False
    if not beta * math.sqrt(longest_query * longest) <= LARGEST_SCORE:
        return False
    at = memory + 8 * _lines(height * n_k)
    scaled = carray(pointer(at), (few, d))
    at += 8 * _lines(few * d)
    share = carray(pointer(at), (n_k,))
    at += 8 * _lines(n_k)
    scale, log_mass, taken = beta * LOG2_E, math.log(largest), values
    if least < largest:
        mass, taken = carray(pointer(of_mass), (n_k,)), carray(pointer(at), (n_k, d_v))
        for j in range(n_k):
            share[j] = mass[j] / largest
            for c in range(d_v):
                taken[j, c] = values[j, c] * share[j]
    else:
        for j in range(n_k):
            share[j] = 1.0
    scores = carray(pointer(memory), (height, n_k))
    mean, log_partition = carray(pointer(of_mean), (n, d_v)), carray(pointer(of_log), (n,))
    if once:
        upper_rows(address, 0, n, keys, scale, scaled, scores)
        mirrored_rows(address, 0, n, scores, taken, share, rows, mean, log_partition, log_mass)
    else:
        block_rows(
            address, 0, n, queries, keys, taken, share, scale, False, scaled, scores, mean, log_partition, log_mass
        )
    return True
