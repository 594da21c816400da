"""Masses spread from tokens to a fine grid of (theta, phi), and fields interpolated back (`sphere.grid`).

Coordinates are in steps of the fine grid, theta in [0, M/2], phi in [0, M]. The grid of `width` more rows and
columns needs no wrapping: its node (i, j) is the torus node (i - width/2, j - width/2). A token with coordinate x
touches the `width` nodes from ceil(x - width/2) on. Tokens are sorted by the first node they touch, so that those
of one bin share their nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from metastable.attention.direct import with_item
from metastable.attention.exp2 import REDUCTION, wide
from metastable.attention.lasting import lasting


def rows_of(fine: int, width: int) -> int:
    """Rows of the padded grid: theta up to pi."""
    return fine // 2 + width + 1


def columns_of(fine: int, width: int) -> int:
    """Columns of the padded grid: phi once around."""
    return fine + width + 1


@njit(cache=True, nogil=True)
def sort_tokens(
    theta: Any, phi: Any, fine: int, order: Any, sorted_theta: Any, sorted_phi: Any, row_start: Any
) -> None:
    """Fills the order of the tokens by bin, their coordinates in that order, and where each row of bins begins."""
    columns = fine + 2
    rows = fine // 2 + 2
    start = np.zeros(rows * columns + 1, dtype=np.int64)
    bins = np.empty(len(theta), dtype=np.int32)
    for i in range(len(theta)):
        b = math.ceil(theta[i]) * columns + math.ceil(phi[i])
        bins[i] = b
        start[b + 1] += 1
    for b in range(rows * columns):
        start[b + 1] += start[b]
    for row in range(rows + 1):
        row_start[row] = start[row * columns]
    for i in range(len(theta)):
        at = start[bins[i]]
        start[bins[i]] += 1
        order[at] = i
        sorted_theta[at], sorted_phi[at] = theta[i], phi[i]


def _add_eight(_context: Any, flat: Any, at: Any, factor: Any, row: Any, start: Any) -> Any:
    """add_eight(flat, at, factor, row, start): flat[at + i] += factor row[start + i] for i < 8, by vectors.

    In a loop LLVM would have to ask whether `flat` and `row` are the same numbers, and adds them one by one.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        def eight(which: int, where: int) -> Any:
            data = context.make_array(signature.args[which])(context, builder, args[which]).data
            return builder.bitcast(builder.gep(data, [args[where]]), ir.VectorType(ir.DoubleType(), 8).as_pointer())

        multiple = ir.Constant(ir.VectorType(ir.DoubleType(), 8), ir.Undefined)
        for i in range(8):
            multiple = builder.insert_element(multiple, args[2], ir.Constant(ir.IntType(32), i))
        target = eight(0, 1)
        product = builder.fmul(multiple, builder.load(eight(3, 4), align=8), flags=("contract",))
        total = builder.fadd(builder.load(target, align=8), product, flags=("contract",))
        builder.store(total, target, align=8)
        return context.get_dummy_value()

    return types.void(flat, types.uintp, types.float64, row, types.uintp), codegen


add_eight: Any = lasting(intrinsic(_add_eight), "add_eight")


@cache
def spreader(width: int, degree: int, count: int = 1) -> Callable[..., None]:
    """Compiled spread for one width and so many columns of masses."""
    sixteen = width == 16  # two wide vectors; those of width 8 are faster as they are

    @njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
    def spread(theta: Any, phi: Any, order: Any, mass: Any, first: int, last: int, table: Any, grid: Any) -> None:
        """Adds the masses (n, c) of the sorted tokens first, ..., last - 1 to padded grids (c, rows, columns)."""
        if sixteen:
            wide()
        left, right = np.empty(width), np.empty(width)
        flat = grid.reshape(-1)
        # Unsigned indices are not checked for being negative.
        columns, size = np.uintp(grid.shape[2]), np.uintp(grid.shape[1] * grid.shape[2])
        for s in range(first, last):
            x, y, row = theta[s], phi[s], order[s]
            i, j = math.ceil(x), math.ceil(y)
            u, v = 2.0 * (i - x) - 1.0, 2.0 * (j - y) - 1.0
            for a in range(width):
                value, other = table[0, a], table[0, a]
                for k in range(1, degree + 1):
                    value = value * u + table[k, a]
                    other = other * v + table[k, a]
                left[a], right[a] = value, other
            start = np.uintp(i) * columns + np.uintp(j)
            for c in range(count):
                m, at = mass[row, c], start
                for a in range(width):
                    factor = left[a] * m
                    for b in range(0, width, 8):
                        add_eight(flat, at + np.uintp(b), factor, right, np.uintp(b))
                    at += columns
                start += size

    return spread


@cache
def interpolator(width: int, degree: int, count: int = 4, divided: bool = True) -> Callable[..., None]:
    """Compiled interpolation of so many fields for one width; divided: all but the last over the last."""
    zeros, sixteen = (0.0,) * count, width == 16

    @njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
    def interpolate(
        theta: Any, phi: Any, order: Any, first: int, last: int, table: Any, fields: Any, mean: Any, total: Any
    ) -> None:  # fmt: skip
        """mean[order] = fields[:, :c]/fields[:, c], total[order] = fields[:, c] at the sorted tokens, or fields."""
        if sixteen:
            wide()
        left, right = np.empty(width), np.empty(width)
        flat = fields.reshape(-1)
        columns = np.uintp(fields.shape[2])
        for s in range(first, last):
            x, y = theta[s], phi[s]
            i, j = math.ceil(x), math.ceil(y)
            u, v = 2.0 * (i - x) - 1.0, 2.0 * (j - y) - 1.0
            for a in range(width):
                value, other = table[0, a], table[0, a]
                for k in range(1, degree + 1):
                    value = value * u + table[k, a]
                    other = other * v + table[k, a]
                left[a], right[a] = value, other
            base = np.uintp(count * i) * columns + np.uintp(j)
            sums = zeros
            for b in range(width):
                along = zeros
                at = base + np.uintp(b)
                for a in range(width):
                    for c in range(count):
                        along = with_item(along, c, along[c] + left[a] * flat[at])
                        at += columns
                for c in range(count):
                    sums = with_item(sums, c, sums[c] + along[c] * right[b])
            row = order[s]
            if divided:
                inverse = 1.0 / sums[count - 1]
                for c in range(count - 1):
                    mean[row, c] = sums[c] * inverse
                total[row] = sums[count - 1]
            else:
                for c in range(count):
                    mean[row, c] = sums[c]

    return interpolate
