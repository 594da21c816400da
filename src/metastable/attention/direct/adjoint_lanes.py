"""Both sums of the transpose of attention for a few rows at a time, over eight keys side by side: float64, CPU.

In the letters of `direct.adjoint`, for rows i of a group and keys j of a vector,

    w_ij = 2^t_ij,  c_ij = w_ij (<g_i, y_j> - s_i),  by_query_i += c_ij y_j,  by_key_j += w_ij g_i + c_ij q_i:

sums of rows stay in registers, those of keys are loaded and stored once for a group, and the exponentials of its
rows, each a chain of instructions that wait for each other, are computed side by side.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from metastable.attention.exp2 import COEFFICIENTS
from metastable.attention.lanes import (
    FLAGS,
    INTEGER,
    INTEGERS,
    LANES,
    VECTOR,
    constant,
    everywhere,
    loop,
    multiply_add,
    powers_of_two,
    spread,
)
from metastable.attention.lasting import lasting

FLOOR = -700.0
"""Smaller exponents are raised to it: 1e-211 of a row is nothing, and its products with what is small are normal
numbers, which cost a processor a tenth of others."""


def rows_at_once(d: int) -> int:
    """Rows of a group: their d sums each are to stay in registers, with what the exponentials need."""
    return 4 if d <= 4 else 2


def numbers_of_a_row(d: int) -> int:
    """[q log2(e) | g | q | -log2 Z | -s] of a row."""
    return 3 * d + 2


@cache
def group_kernel(d: int) -> Any:
    """add(keys, by_key, b, even, last, rows, seen, sums), for compiled code: the sums above over keys j < last.

    keys (blocks, d + 1, n) are columns y and log2 m, by_key (blocks, d, n), n a multiple of eight, b the block.
    rows (rows_at_once, numbers_of_a_row); row i sees keys below seen[i], all of which are at least `even`, a
    multiple of eight. sums (rows_at_once, d, 8) become those of by_query, of the eight places each.
    """
    group, wide = rows_at_once(d), numbers_of_a_row(d)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        keys, by_key, rows, seen, sums = (
            context.make_array(signature.args[place])(context, builder, args[place]) for place in (0, 1, 5, 6, 7)
        )
        _, _, b, even, last, *_ = args
        n = builder.extract_value(keys.shape, 2)
        first_key = builder.mul(b, builder.mul(n, ir.Constant(INTEGER, d + 1)))
        first_sum = builder.mul(b, builder.mul(n, ir.Constant(INTEGER, d)))
        key_columns = [builder.add(first_key, builder.mul(n, ir.Constant(INTEGER, c))) for c in range(d + 1)]
        sum_columns = [builder.add(first_sum, builder.mul(n, ir.Constant(INTEGER, c))) for c in range(d)]
        limits = [builder.load(builder.gep(seen.data, [ir.Constant(INTEGER, i)])) for i in range(group)]
        floor = constant(FLOOR)

        def vector(base: Any, at: Any) -> Any:
            return builder.bitcast(builder.gep(base, [at]), VECTOR.as_pointer())

        def given(i: int, place: int) -> Any:
            return everywhere(builder, rows.data, ir.Constant(INTEGER, i * wide + place))

        def exponent(i: int, y: list[Any]) -> Any:
            t = builder.fadd(y[d], given(i, 3 * d), flags=FLAGS)
            for c in range(d):
                t = multiply_add(builder, given(i, c), y[c], t)
            return builder.select(builder.fcmp_ordered(">", t, floor), t, floor)

        def added(j: Any, held: list[Any], masked: bool) -> list[Any]:
            y = [builder.load(vector(keys.data, builder.add(column, j)), align=8) for column in key_columns]
            weights = powers_of_two(builder, [exponent(i, y) for i in range(group)], COEFFICIENTS, False)
            if masked:
                places = ir.Constant(INTEGERS, list(range(LANES)))
                left = [spread(builder, builder.sub(limit, j), INTEGERS) for limit in limits]
                inside = [builder.icmp_signed("<", places, each) for each in left]
                weights = [builder.select(mask, w, constant(0.0)) for mask, w in zip(inside, weights, strict=True)]
            changes = []
            for i in range(group):
                change = given(i, 3 * d + 1)
                for c in range(d):
                    change = multiply_add(builder, given(i, d + c), y[c], change)
                changes.append(builder.fmul(weights[i], change, flags=FLAGS))
            for c in range(d):
                to = vector(by_key.data, builder.add(sum_columns[c], j))
                total = builder.load(to, align=8)
                for i in range(group):
                    total = multiply_add(builder, weights[i], given(i, d + c), total)
                    total = multiply_add(builder, changes[i], given(i, 2 * d + c), total)
                builder.store(total, to, align=8)
            return [
                multiply_add(builder, changes[i], y[c], held[i * d + c]) for i in range(group) for c in range(d)
            ]

        held = [constant(0.0)] * (group * d)
        held = loop(builder, ir.Constant(INTEGER, 0), even, held, lambda j, so_far: added(j, so_far, False), LANES)
        held = loop(builder, even, last, held, lambda j, so_far: added(j, so_far, True), LANES)
        for place, total in enumerate(held):
            builder.store(total, vector(sums.data, ir.Constant(INTEGER, LANES * place)), align=8)
        return context.get_dummy_value()

    def typed(
        _context: Any, keys: Any, by_key: Any, b: Any, even: Any, last: Any, rows: Any, seen: Any, sums: Any
    ) -> Any:
        counts = types.intp, types.intp, types.intp
        return types.void(keys, by_key, *counts, rows, seen, sums), codegen

    return lasting(intrinsic(typed), f"transpose of a group {d}")
