"""Eight queries and two keys in the sixteen places of a vector in single precision: sums that matter little.

A key whose weights are 1e-5 of the partition needs five digits less than the others, and single precision takes two
fifths of the time. Scores in the hundreds would round away the digits of an exponent, so that they are split at the
centre c of the eight queries: <z_a, k> = <c, k>, computed in double precision, + <z_a - c, k>, a small number.
Written with llvmlite (`attention.lanes`).
"""

from __future__ import annotations

import math
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from metastable.attention.exp2 import NO_REASSOCIATION, wide
from metastable.attention.lanes import FLAGS, LANES, loop, multiply_add, spread

PLACES = 2 * LANES
"""Of query a and the two keys: 2 a and 2 a + 1."""
CHUNK = 64
"""Pairs of keys whose weights are summed in single precision."""
_D = 3
_ROUND = 12582912.0
"""1.5 * 2^23."""
LEAST = -120.0
"""Smaller exponents are raised to it."""
_COEFFICIENTS = (1.0, 0.6931210452034271, 0.2402234903802036, 0.05592197584225585, 0.009666368515385448)
"""Of 2^r through five Chebyshev nodes of [-1/2, 1/2], the constant first."""
_UNIT = 2.0**-24


@njit(cache=True, inline="always")
def single_error(of_centre: float, of_queries: float) -> float:
    """Bound of the relative error of sums of weights whose exponents to base two are a sum of a number up to
    `of_centre` and of <q, k> with |q| up to `of_queries`, |k| = 1, and of the error of sums of keys by them.

    Rounding of s, q and k, and of three multiply-adds; the polynomial (3.6e-6, and three units); a weight times a
    key, and chunks of sums.
    """
    exponent = _UNIT * (4.0 * of_centre + 5.0 * of_queries) * math.log(2.0)
    return 1.01 * exponent + 3.6e-6 + 3.0 * _UNIT + (CHUNK + 2.0) * _UNIT


def _vectors() -> Any:
    """add(keys, length, of_centre, pairs, first, last, queries, sums), arrays flat: for the places of queries a

        sums[:, 2 a + i] += 2^t (k_j, 1),   t = s_j + sum_c q_ca k_jc,   j = 2 pairs[e] + i,   first <= e < last,

    keys (3, length) and s = of_centre (length,), queries (3, 16), every query twice, sums (4, 16).
    """
    vector, integer = ir.VectorType(ir.FloatType(), PLACES), ir.IntType(64)
    integers = ir.VectorType(ir.IntType(32), PLACES)

    def constant(value: float) -> Any:
        return ir.Constant(vector, [value] * PLACES)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args

        def data(place: int) -> Any:
            return context.make_array(kinds[place])(context, builder, args[place]).data

        def row(base: Any, c: int) -> Any:
            return builder.bitcast(builder.gep(base, [ir.Constant(integer, PLACES * c)]), vector.as_pointer())

        keys, pairs, queries, sums = data(0), data(3), data(6), data(7)
        starts = [builder.gep(keys, [builder.mul(args[1], ir.Constant(integer, c))]) for c in range(_D)]
        starts.append(data(2))
        q = [builder.load(row(queries, c), align=4) for c in range(_D)]
        before = [builder.load(row(sums, c), align=4) for c in range(_D + 1)]

        def both(pair: Any, c: int) -> Any:
            """Two numbers that are neighbours in memory are moved as one of twice their size."""
            start = builder.bitcast(starts[c], ir.DoubleType().as_pointer())
            return builder.bitcast(spread(builder, builder.load(builder.gep(start, [pair]), align=4)), vector)

        def summed(e: Any, held: list[Any]) -> list[Any]:
            pair = builder.load(builder.gep(pairs, [e]))
            k = [both(pair, c) for c in range(_D)]
            t = both(pair, _D)
            for c in range(_D):
                t = multiply_add(builder, q[c], k[c], t)
            t = builder.select(builder.fcmp_ordered(">", t, constant(LEAST)), t, constant(LEAST))
            rounded = builder.fadd(t, constant(_ROUND))
            r = builder.fsub(t, builder.fsub(rounded, constant(_ROUND)))
            p = constant(_COEFFICIENTS[-1])
            for coefficient in reversed(_COEFFICIENTS[:-1]):
                p = multiply_add(builder, p, r, constant(coefficient))
            shifted = builder.shl(builder.bitcast(rounded, integers), ir.Constant(integers, [23] * PLACES))
            weight = builder.bitcast(builder.add(builder.bitcast(p, integers), shifted), vector)
            after = [multiply_add(builder, weight, k[c], held[c]) for c in range(_D)]
            after.append(builder.fadd(held[_D], weight, flags=FLAGS))
            return after

        for c, after in enumerate(loop(builder, args[4], args[5], before, summed)):
            builder.store(after, row(sums, c), align=4)
        return context.get_dummy_value()

    def add(
        _context: Any, keys: Any, _length: Any, of_centre: Any, pairs: Any, _first: Any, _last: Any, queries: Any,
        sums: Any,
    ) -> Any:  # fmt: skip
        return types.void(keys, types.intp, of_centre, pairs, types.intp, types.intp, queries, sums), codegen

    return intrinsic(add)


_singly = _vectors()


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def single_sums(
    keys: Any, length: int, of_centre: Any, pairs: Any, count: int, queries: Any, some: Any, sums: Any
) -> None:
    """sums (4, 16) in double precision += those over pairs[:count] (`_vectors`); some: (4, 16), in single."""
    wide()
    for first in range(0, count, CHUNK):
        for a in range(len(some)):
            some[a] = 0.0
        _singly(keys, length, of_centre, pairs, first, min(first + CHUNK, count), queries, some)
        for a in range(len(some)):
            sums[a] += some[a]
