"""`dgemm` with vectors of 512 bits, for processors on which the libraries multiply with 256 (`direct.processor`).

C (m, n) = A (m, k) B, or C += A B: strips of 24 columns of B are laid out one row after the other, and tiles of
eight rows of A and such a strip are summed over k in 24 registers, three loads and eight spread numbers for 24
multiply-adds. 115 to 130 GFlop/s of a Zen 5 core for the shapes of attention, where MKL has 42 to 64 and OpenBLAS
55 to 66. Written with llvmlite (`attention.lanes`). Sums over k are in one order, whatever m and n are.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

from metastable.attention.exp2 import NO_REASSOCIATION, wide
from metastable.attention.lasting import lasting, written

LANES = 8
"""Numbers of a vector."""
STRIP = 24
"""Columns of a strip, three vectors: with eight rows 24 sums, and the 32 registers hold all that is at hand."""
INNER = 384
"""Terms that are summed at once: a strip of so many rows, 74 KB, stays in the second cache."""
_FLAGS = ("contract", "nsz")
_VECTOR, _WHOLE, _REAL = map(written, (ir.VectorType(ir.DoubleType(), LANES), ir.IntType(64), ir.DoubleType()))


def _number(value: int) -> Any:
    return ir.Constant(_WHOLE, value)


def _numbers_at(builder: Any, address: Any) -> Any:
    """The address of numbers as a pointer."""
    return builder.inttoptr(address, _REAL.as_pointer())


def _vector_at(builder: Any, base: Any, place: Any) -> Any:
    return builder.bitcast(builder.gep(base, [place]), _VECTOR.as_pointer())


def _tile(rows: int, vectors: int) -> Any:
    """tile(a, down, along, b, k, c, apart, added): C[r, :] = sum_l A[r, l] B[l, :], or C += it, of a few rows.

    a, b, c: addresses. A[r, l] is `down` r + `along` l numbers from a. Rows of B are `STRIP` numbers apart, those
    of C `apart`.
    """

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        a, down, along, b, k, c, apart, added = args
        zero, undefined = ir.Constant(_VECTOR, [0.0] * LANES), ir.Constant(_VECTOR, ir.Undefined)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        of_rows = [builder.gep(_numbers_at(builder, a), [builder.mul(down, _number(row))]) for row in range(rows)]
        of_b, of_c, entry = _numbers_at(builder, b), _numbers_at(builder, c), builder.block
        loop, end = builder.append_basic_block("term"), builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        term = builder.phi(_WHOLE)
        held = [[builder.phi(_VECTOR) for _ in range(vectors)] for _ in range(rows)]
        begin = builder.mul(term, _number(STRIP))
        right = [
            builder.load(_vector_at(builder, of_b, builder.add(begin, _number(LANES * v))), align=8)
            for v in range(vectors)
        ]
        place, sums = builder.mul(term, along), []
        for row in range(rows):
            value = builder.load(builder.gep(of_rows[row], [place]))
            one = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
            left = builder.shuffle_vector(one, undefined, everywhere)
            sums.append(
                [
                    builder.fadd(builder.fmul(left, right[v], flags=_FLAGS), held[row][v], flags=_FLAGS)
                    for v in range(vectors)
                ]
            )
        following = builder.add(term, _number(1))
        term.add_incoming(_number(0), entry)
        term.add_incoming(following, loop)
        for row in range(rows):
            for v in range(vectors):
                held[row][v].add_incoming(zero, entry)
                held[row][v].add_incoming(sums[row][v], loop)
        builder.cbranch(builder.icmp_signed("<", following, k), loop, end)
        builder.position_at_end(end)
        for row in range(rows):
            for v in range(vectors):
                at = _vector_at(builder, of_c, builder.add(builder.mul(apart, _number(row)), _number(LANES * v)))
                before = builder.select(added, builder.load(at, align=8), zero)
                builder.store(builder.fadd(sums[row][v], before), at, align=8)
        return context.get_dummy_value()

    def tile(_context: Any, a: Any, down: Any, along: Any, b: Any, k: Any, c: Any, apart: Any, added: Any) -> Any:
        return types.void(*(types.int64,) * 7, types.boolean), codegen

    return intrinsic(tile)


def _turn() -> Any:
    """turn(given, apart, out): out[l, :] = given[:, l] of eight rows and columns, by their addresses.

    Rows of `given` are `apart` numbers from each other, those of `out` `STRIP`.
    """

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        given, apart, out = args
        source, target = _numbers_at(builder, given), _numbers_at(builder, out)

        def mixed(one: Any, other: Any, order: list[int]) -> Any:
            return builder.shuffle_vector(one, other, ir.Constant(ir.VectorType(ir.IntType(32), LANES), order))

        rows = [
            builder.load(_vector_at(builder, source, builder.mul(apart, _number(r))), align=8) for r in range(LANES)
        ]
        # Numbers of two rows side by side, then of four, then of eight.
        two = []
        for r in range(0, LANES, 2):
            two.append(mixed(rows[r], rows[r + 1], [0, 8, 2, 10, 4, 12, 6, 14]))
            two.append(mixed(rows[r], rows[r + 1], [1, 9, 3, 11, 5, 13, 7, 15]))
        four: list[Any] = [None] * LANES
        for half in (0, 4):
            for column in (0, 1):
                upper, lower = two[half + column], two[half + 2 + column]
                four[half + column] = mixed(upper, lower, [0, 1, 8, 9, 4, 5, 12, 13])
                four[half + 2 + column] = mixed(upper, lower, [2, 3, 10, 11, 6, 7, 14, 15])
        for column in range(4):
            upper, lower = four[column], four[4 + column]
            for later, order in ((0, [0, 1, 2, 3, 8, 9, 10, 11]), (4, [4, 5, 6, 7, 12, 13, 14, 15])):
                at = _vector_at(builder, target, _number(STRIP * (column + later)))
                builder.store(mixed(upper, lower, order), at, align=8)
        return context.get_dummy_value()

    def turn(_context: Any, given: Any, apart: Any, out: Any) -> Any:
        return types.void(*(types.int64,) * 3), codegen

    return intrinsic(turn)


def _numbers() -> Any:
    """numbers(address): the pointer that `numba.carray` takes."""
    target = types.CPointer(types.float64)

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], context.get_value_type(target))

    def numbers(_context: Any, address: Any) -> Any:
        return target(types.int64), codegen

    return intrinsic(numbers)


_eight_by_three, _eight_by_two, _eight_by_one = _tile(8, 3), _tile(8, 2), _tile(8, 1)
_four_by_three, _four_by_two, _four_by_one = _tile(4, 3), _tile(4, 2), _tile(4, 1)
_one_by_three, _one_by_two, _one_by_one = _tile(1, 3), _tile(1, 2), _tile(1, 1)
_turned, pointer = _turn(), lasting(_numbers(), "pointer")
_compiled: Any = njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")


@_compiled
def _strip(
    m: int, a: int, down: int, along: int, b: int, k: int, c: int, apart: int, added: bool, vectors: int
) -> None:
    """All rows of A with a strip of so many vectors."""
    wide()
    row = 0
    while row < m:
        from_a, to_c, left = a + 8 * down * row, c + 8 * apart * row, m - row
        if left >= 8:
            if vectors == 3:
                _eight_by_three(from_a, down, along, b, k, to_c, apart, added)
            elif vectors == 2:
                _eight_by_two(from_a, down, along, b, k, to_c, apart, added)
            else:
                _eight_by_one(from_a, down, along, b, k, to_c, apart, added)
            row += 8
        elif left >= 4:
            if vectors == 3:
                _four_by_three(from_a, down, along, b, k, to_c, apart, added)
            elif vectors == 2:
                _four_by_two(from_a, down, along, b, k, to_c, apart, added)
            else:
                _four_by_one(from_a, down, along, b, k, to_c, apart, added)
            row += 4
        else:
            if vectors == 3:
                _one_by_three(from_a, down, along, b, k, to_c, apart, added)
            elif vectors == 2:
                _one_by_two(from_a, down, along, b, k, to_c, apart, added)
            else:
                _one_by_one(from_a, down, along, b, k, to_c, apart, added)
            row += 1


@_compiled
def _lay_out(b: int, apart: int, turned: bool, first: int, width: int, begin: int, depth: int, out: Any) -> None:
    """out[l, j] = B[begin + l, first + j], of B^T if `turned`; zero beyond `width`."""
    wide()
    at = out.ctypes.data
    if turned:
        columns = carray(pointer(b), (first + width, apart))
        whole_columns, whole_rows = width // LANES * LANES, depth // LANES * LANES
        for j in range(0, whole_columns, LANES):
            for l in range(0, whole_rows, LANES):
                _turned(b + 8 * ((first + j) * apart + begin + l), apart, at + 8 * (STRIP * l + j))
            for l in range(whole_rows, depth):
                for c in range(j, j + LANES):
                    out[l, c] = columns[first + c, begin + l]
        for j in range(whole_columns, width):
            for l in range(depth):
                out[l, j] = columns[first + j, begin + l]
    else:
        rows = carray(pointer(b), (begin + depth, apart))
        for l in range(depth):
            for j in range(width):
                out[l, j] = rows[begin + l, first + j]
    for l in range(depth if width < STRIP else 0):
        for j in range(width, STRIP):
            out[l, j] = 0.0


@_compiled
def multiply_wide(
    m: int, n: int, k: int, a: int, down: int, along: int, b: int, b_apart: int, turned: bool, c: int, c_apart: int,
    added: bool,
) -> None:  # fmt: skip
    """C = A B, or C += A B if `added`, with B^T for B if `turned`, by their addresses.

    A[i, l] is `down` i + `along` l numbers from a; rows of B and C begin `b_apart` and `c_apart` numbers apart.
    """
    strip, edge = np.empty((min(k, INNER), STRIP)), np.empty((0, STRIP))
    for begin in range(0, k, INNER):
        depth, more = min(INNER, k - begin), added or begin > 0
        from_a = a + 8 * along * begin
        for first in range(0, n, STRIP):
            width = min(STRIP, n - first)
            vectors = -(-width // LANES)
            _lay_out(b, b_apart, turned, first, width, begin, depth, strip)
            if width == vectors * LANES:
                to = c + 8 * first
                _strip(m, from_a, down, along, strip.ctypes.data, depth, to, c_apart, more, vectors)
                continue
            # Vectors would reach beyond the row.
            if len(edge) == 0:
                edge = np.empty((m, STRIP))
            _strip(m, from_a, down, along, strip.ctypes.data, depth, edge.ctypes.data, STRIP, False, vectors)
            target = carray(pointer(c), ((m - 1) * c_apart + n,))
            for i in range(m):
                for j in range(width):
                    at = i * c_apart + first + j
                    target[at] = edge[i, j] + (target[at] if more else 0.0)


@cache
def own_product_address() -> int:
    """Where a `dgemm` with Fortran's arguments begins that multiplies so.

    alpha is taken as one, beta as zero or one, and there is a term at least.
    """
    byte, whole, real = (types.CPointer(kind) for kind in (types.uint8, types.int32, types.float64))
    signature = types.void(byte, byte, whole, whole, whole, real, types.int64, whole, types.int64, whole, real,
                           types.int64, whole)  # fmt: skip
    transposed = ord("T")

    @cfunc(signature, cache=True)
    def dgemm(
        of_b: Any, of_a: Any, n: Any, m: Any, k: Any, _alpha: Any, b: Any, b_apart: Any, a: Any, a_apart: Any,
        beta: Any, c: Any, c_apart: Any,
    ) -> None:  # fmt: skip
        # Fortran's columns are our rows: C^T = op(B)^T op(A)^T.
        down, along = (1, a_apart[0]) if of_a[0] == transposed else (a_apart[0], 1)
        added, turned = beta[0] != 0.0, of_b[0] == transposed
        multiply_wide(m[0], n[0], k[0], a, down, along, b, b_apart[0], turned, c, c_apart[0], added)

    _alive.append(dgemm)
    assert dgemm.address is not None
    return dgemm.address


_alive: list[Any] = []
"""Compiled functions whose addresses were given away."""
