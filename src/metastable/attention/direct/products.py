"""Two matrix products with the exponentials between them, for larger d and up to some thousand tokens in float64.

A block of rows of t_ij = beta log2(e) <q_i, k_j> becomes 2^{t_ij} in place, while it is in the second cache, and
meets [m v] in the second product. Scores are at most L = beta max|q| max|k|; as long as that is far from the ends
of float64, nothing is shifted and no maximum is looked for. Larger ones are shifted by the maximum of their row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from metastable.attention.direct.exponents import DOUBLE
from metastable.attention.direct.matrix_product import kept_room, multiply, multiply_part, product_address, room
from metastable.attention.direct.maximum import largest_of
from metastable.attention.exp2 import LN_2, LOG2_E, REDUCTION, exp2, wide
from metastable.attention.lasting import lasting
from metastable.attention.operands import Operands, same_tensor
from metastable.errors import InvalidInput
from metastable.threads import blas_can_be_held, over_rows

LARGEST_SCORE = 0.999 * DOUBLE.bound / LOG2_E
"""Scores up to this are not shifted: 2^360 times 2^30 keys and 2^-360 times MOST_MASS_RATIO^-1 are float64 numbers
with all their digits, which end at 2^1023 and 2^-1022. A thousandth is left to the rounding of the bound."""
MOST_MASS_RATIO = 1e100
"""Largest ratio of masses, which multiply the weights: with scores as above no product underflows; where rows are
shifted, what is raised beside a weight of one is 2^-1000, and below the rounding of that ratio."""
MOST_AT_ONCE = 6_000_000
"""Pairs of a call that is compiled as a whole, of a stage in kept memory, and of scores that are all held: 48 MB.
Beyond, what is spared is nothing beside the products."""
MOST_KEYS = 20_000
"""Keys at most where products of our own are faster than tiles: for so many it was measured, and rows of a block
meet all of them."""
_SCORES = 1 << 17
"""Scores of a block, 1 MB: between the two products they stay in a second cache, up to 2000 keys."""
_LEAST_ROWS = ((512, 384), (256, 128), (0, 64))
"""(columns, rows): rows of a block at least, from so many columns on. Before a product begins, it puts its second
factor in another order, once for every block, which costs the more beside scores that leave the second cache the
more columns there are (n = 1000 and 2000, d = 64, 384 and 768)."""
_MOST_ROWS = 128
"""Rows of a block at most, unless that is fewer, so that threads can share them."""
_TILE = 256
"""Keys of a tile of scores, whose part in the second product is left out where no row of a block needs it."""
_NEGLIGIBLE = 2.0**-60
"""A row needs a tile that has more than this part of Z: what is left out of eighty tiles, those of the most keys
that come here, is 2^-53 of the longest value. Tokens in many dimensions that attend to hardly anyone but
themselves, as at the start of a run, need few."""

SYMMETRIC = 32
"""Columns from which it pays, where the queries are the keys, to compute every score once and hold them all."""
MOST_SYMMETRIC, SYMMETRIC_BEYOND = 512, 128
"""Tokens up to which all scores, 2 MB, stay in a second cache; beyond, fetching them costs as much as computing
them, unless there are so many columns."""
_LEAST_HALF = 40
"""Rows of a block of the upper triangle at least; a quarter of all, where that is more. With 100 and 200 tokens in
384 and 768 dimensions 40 take .96 to .98 of the time of 64; in 32 and 64 dimensions it makes no difference."""


def rows_of_block(n_k: int, d: int) -> int:
    """Rows that meet all keys at a time, whatever the number of threads: digits do not depend on it."""
    least = next(rows for columns, rows in _LEAST_ROWS if d >= columns)
    return max(least, min(_MOST_ROWS, _SCORES // n_k // 16 * 16))


def rows_of_half(n: int) -> int:
    """Rows of a block of the upper triangle of the scores of n tokens with themselves."""
    return min(_MOST_ROWS, max(_LEAST_HALF, n // 64 * 16))


def every_score_once(n: int, d: int) -> bool:
    """Whether it pays to hold all scores of n tokens with themselves, half of which mirror the other half."""
    return d >= (SYMMETRIC if n <= MOST_SYMMETRIC else SYMMETRIC_BEYOND)


def products_cost(n: int, n_k: int, columns: int) -> float:
    """Rough nanoseconds of one core for all pairs, for the choice of threads; columns: d + d_v."""
    return n * n_k * (0.5 + 0.03 * columns)


def attend_products(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) of `attend` on the CPU for any d and d_v in float64."""
    operands.require_cpu("products")
    if operands.queries.dtype != torch.float64:
        dtype = str(operands.queries.dtype).removeprefix("torch.")
        raise InvalidInput(f'kernel="products" computes in float64, got {dtype}; use kernel="blocks"')
    operands = operands.seen
    queries, keys, values, mass = operands.arrays
    (n, d), (n_k, d_v) = queries.shape, values.shape
    least, largest, _ = operands.masses
    share = mass / largest
    weighted = values if least == largest else np.multiply(values, share[:, None], out=room(n_k, d_v))
    scale = operands.beta * LOG2_E
    shifted = operands.largest_score > LARGEST_SCORE
    mean, log_partition = torch.empty((n, d_v), dtype=torch.float64), torch.empty(n, dtype=torch.float64)
    out = mean.numpy(), log_partition.numpy(), math.log(largest)
    rows, address = rows_of_block(n_k, d), product_address()
    given, cost = (queries, keys, weighted, share, scale, shifted), products_cost(n, n_k, d + d_v)

    def some_rows(start: int, stop: int) -> None:
        height = max(1, min(rows, n))
        block_rows(address, start, stop, *given, room(height, d), room(height, n_k), *out)

    def over_blocks(work: Callable[[int, int], None], quantum: int) -> None:
        if blas_can_be_held():
            over_rows(work, n, cost=cost, quantum=quantum)
        else:
            work(0, n)

    once = n * n <= MOST_AT_ONCE and every_score_once(n, d) and same_tensor(operands.queries, operands.keys)
    if shifted or not once:
        over_blocks(some_rows, rows)
        return mean, log_partition
    scores, few = kept_room(n * n).reshape(n, n), rows_of_half(n)
    over_blocks(lambda start, stop: upper_rows(address, start, stop, keys, scale, room(few, d), scores), few)
    over_blocks(lambda start, stop: mirrored_rows(address, start, stop, scores, weighted, share, rows, *out), rows)
    return mean, log_partition


@njit(nogil=True, cache=True, error_model="numpy")
def block_rows(
    address: int, start: int, stop: int, queries: Any, keys: Any, weighted: Any, share: Any, scale: float,
    shifted: bool, scaled: Any, scores: Any, mean: Any, log_partition: Any, log_mass: float,
) -> None:  # fmt: skip
    """Rows start to stop of mean and log Z, block by block."""
    for first in range(start, stop, len(scores)):
        height = min(len(scores), stop - first)
        for i in range(height):
            for c in range(queries.shape[1]):
                scaled[i, c] = scale * queries[first + i, c]
        some, z = mean[first : first + height], log_partition[first : first + height]
        attended_rows(address, scaled, keys, weighted, share, shifted, scores, some, z)
        for i in range(height):
            z[i] = z[i] * LN_2 + log_mass


@njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
def upper_rows(address: int, start: int, stop: int, keys: Any, scale: float, scaled: Any, scores: Any) -> None:
    """2^{scale <k_i, k_j>} for the rows i from start to stop and j >= i, and mirrored below the diagonal."""
    wide()
    n, d, block = keys.shape[0], keys.shape[1], len(scaled)
    for first in range(start, stop, block):
        last = min(first + block, stop)
        for i in range(first, last):
            for c in range(d):
                scaled[i - first, c] = scale * keys[i, c]
        corner = scores[first:, first:]
        multiply(
            address, True, last - first, n - first, d, scaled.ctypes.data, keys[first:].ctypes.data,
            corner.ctypes.data, n,
        )  # fmt: skip
        for i in range(first, last):
            row = scores[i, first:]
            for j in range(len(row)):  # from 0: loops that begin elsewhere do not become vector instructions
                row[j] = exp2(row[j])
        for j in range(last, n):
            row = scores[j]
            for i in range(first, last):
                row[i] = scores[i, j]


@njit(fastmath=REDUCTION, nogil=True, cache=True, error_model="numpy")
def mirrored_rows(
    address: int, start: int, stop: int, scores: Any, weighted: Any, share: Any, block: int, mean: Any,
    log_partition: Any, log_mass: float,
) -> None:  # fmt: skip
    """Rows start to stop of mean and log Z from the weights of all pairs.

    The weights are divided by Z, or the sums over them, whichever are fewer.
    """
    n, d_v = weighted.shape
    inverses = np.empty(block)
    for first in range(start, stop, block):
        last = min(first + block, stop)
        some, means = scores[first:last], mean[first:last]
        for i in range(first, last):
            total = 0.0
            for j in range(n):
                total += scores[i, j] * share[j]
            log_partition[i] = math.log(total) + log_mass
            inverses[i - first] = 1.0 / total
            if n < d_v:
                for j in range(n):
                    scores[i, j] *= inverses[i - first]
        multiply(
            address, False, last - first, d_v, n, some.ctypes.data, weighted.ctypes.data, means.ctypes.data, d_v
        )
        if n >= d_v:
            for i in range(first, last):
                for c in range(d_v):
                    mean[i, c] *= inverses[i - first]


def _attended_rows(
    address: int, queries: Any, keys: Any, weighted: Any, share: Any, shifted: bool, scores: Any, mean: Any,
    log_partition: Any,
) -> None:  # fmt: skip
    """sum_j s_j 2^{<q_i, k_j>} v_j / Z_i and log2 Z_i for the rows of `mean`, which are at most those of `scores`.

    queries: times beta log2(e). weighted: s_j v_j. For compiled code.
    """
    wide()
    height, n_k, d, d_v = len(mean), keys.shape[0], keys.shape[1], weighted.shape[1]
    floor, tiles = DOUBLE.floor, -(-n_k // _TILE)
    parts, needed = np.empty(tiles), np.zeros(tiles + 1, dtype=np.bool_)
    multiply(address, True, height, n_k, d, queries.ctypes.data, keys.ctypes.data, scores.ctypes.data, n_k)
    for i in range(height):
        top, total = 0.0, 0.0
        if shifted:
            top = largest_of(scores[i], n_k)
        for tile in range(tiles):
            row, of_row = scores[i, tile * _TILE : (tile + 1) * _TILE], share[tile * _TILE : (tile + 1) * _TILE]
            part = 0.0
            if shifted:
                for j in range(len(row)):
                    t = row[j] - top
                    w = exp2(t if t > floor else floor)
                    row[j] = w
                    part += w * of_row[j]
            else:
                for j in range(len(row)):
                    w = exp2(row[j])
                    row[j] = w
                    part += w * of_row[j]
            parts[tile] = part
            total += part
        for tile in range(tiles):
            needed[tile] = needed[tile] or parts[tile] > _NEGLIGIBLE * total
        log_partition[i] = top + math.log2(total)
        # One over Z, until the second product has been made.
        queries[i, 0] = 1.0 / total
    added, first = False, 0
    for tile in range(tiles):
        if needed[tile] and (tile == 0 or not needed[tile - 1]):
            first = tile * _TILE
        if needed[tile] and not needed[tile + 1]:
            columns = min((tile + 1) * _TILE, n_k) - first
            some, others = scores[:, first:], weighted[first:]
            multiply_part(
                address, added, height, d_v, columns, some.ctypes.data, n_k, others.ctypes.data, mean.ctypes.data
            )
            added = True
    for i in range(height):
        inverse = queries[i, 0]
        for c in range(d_v):
            mean[i, c] *= inverse


attended_rows: Any = lasting(
    njit(fastmath=REDUCTION, nogil=True, error_model="numpy")(_attended_rows), "attended_rows"
)
