"""Polynomials in vector registers for compiled loops over tokens that each belong to another cell.

A loop over such tokens cannot be turned into vector instructions: every token reads and writes rows of its own. The
rows can, so these functions spell out the vectors: one token, its row in one register. They are written with
llvmlite, numba's own compiler, because numba has no vector type.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

_FLAGS = ("contract", "nnan", "ninf", "nsz")


def _vector(width: int) -> Any:
    """The type of `width` float64 in one register."""
    return ir.VectorType(ir.DoubleType(), width)


def _spread(builder: Any, value: Any, width: int) -> Any:
    """The same value in all entries."""
    undefined, first = ir.Constant(_vector(width), ir.Undefined), ir.Constant(ir.IntType(32), 0)
    mask = ir.Constant(ir.VectorType(ir.IntType(32), width), [0] * width)
    return builder.shuffle_vector(builder.insert_element(undefined, value, first), undefined, mask)


def _multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return builder.fadd(builder.fmul(a, b, flags=_FLAGS), c, flags=_FLAGS)


def _load(builder: Any, pointer: Any, width: int) -> Any:
    return builder.load(builder.bitcast(pointer, _vector(width).as_pointer()), align=8)


def _store(builder: Any, value: Any, pointer: Any, width: int) -> None:
    builder.store(value, builder.bitcast(pointer, _vector(width).as_pointer()), align=8)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [offset])


def polynomials_to_row(table: np.ndarray) -> Any:
    """Compiled add(array, offset, x, m): array[offset + a] += m sum_k table[k, a] x^k for all a; array is flat."""
    order, width = table.shape

    @intrinsic
    def add(_context: Any, array: Any, _offset: Any, _x: Any, _m: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = _pointer(context, builder, signature.args[0], args[0], args[1])
            x, m = _spread(builder, args[2], width), _spread(builder, args[3], width)
            rows = [ir.Constant(_vector(width), [float(c) for c in table[k]]) for k in range(order)]
            value = rows[-1]
            for row in reversed(rows[:-1]):
                value = _multiply_add(builder, value, x, row)
            _store(builder, _multiply_add(builder, value, m, _load(builder, pointer, width)), pointer, width)
            return context.get_dummy_value()

        return types.void(array, types.intp, types.float64, types.float64), codegen

    return add


def _four_polynomials(_context: Any, array: Any, _offset: Any, _order: Any, _x: Any, out: Any, _place: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        integer = ir.IntType(64)
        base = _pointer(context, builder, signature.args[0], args[0], args[1])
        x = _spread(builder, args[3], 4)

        def row(k: Any) -> Any:
            return _load(builder, builder.gep(base, [builder.mul(k, ir.Constant(integer, 4))]), 4)

        last = builder.sub(args[2], ir.Constant(integer, 1))
        highest = row(last)
        before = builder.block
        loop, end = builder.append_basic_block("row"), builder.append_basic_block("done")
        builder.cbranch(builder.icmp_signed(">", last, ir.Constant(integer, 0)), loop, end)
        builder.position_at_end(loop)
        k, value = builder.phi(integer), builder.phi(_vector(4))
        below = builder.sub(k, ir.Constant(integer, 1))
        next_value = _multiply_add(builder, value, x, row(below))
        k.add_incoming(last, before)
        k.add_incoming(below, loop)
        value.add_incoming(highest, before)
        value.add_incoming(next_value, loop)
        builder.cbranch(builder.icmp_signed(">", below, ir.Constant(integer, 0)), loop, end)
        builder.position_at_end(end)
        result = builder.phi(_vector(4))
        result.add_incoming(highest, before)
        result.add_incoming(next_value, loop)
        _store(builder, result, _pointer(context, builder, signature.args[4], args[4], args[5]), 4)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, types.float64, out, types.intp), codegen


four_polynomials: Any = intrinsic(_four_polynomials)
"""four_polynomials(array, offset, order, x, out, place): out[place + a] = sum_k array[offset + 4 k + a] x^k, a < 4.

k < order; both arrays are flat, order >= 1; called from compiled code.
"""
