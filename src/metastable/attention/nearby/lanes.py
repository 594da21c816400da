"""Eight queries in the eight places of a vector: their sums over a range of keys, one key after the other."""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from metastable.attention.exp2 import COEFFICIENTS, NO_REASSOCIATION, wide
from metastable.attention.lanes import FLAGS, INTEGER, LANES, VECTOR, everywhere, loop, multiply_add, power_of_two

COARSE = (
    0.9999999999999997,
    0.6931471805459343,
    0.24022650695821055,
    0.055504109412010456,
    0.009618129157656703,
    0.0013333450573018062,
    0.00015403457039410448,
    1.531007807039615e-05,
    1.325497460306718e-06,
)
"""Coefficients of 2^r through nine Chebyshev nodes of [-1/2, 1/2]."""
COARSE_ERROR = 1.1e-12
"""More than its largest relative error."""


def _vectors(
    d: int, coefficients: tuple[float, ...] = COEFFICIENTS, equal: bool = False, listed: bool = False
) -> Any:
    """add(keys, length, first, last, queries, sums), arrays flat: for the eight places a

        sums[:, a] += m_j 2^{t_ja} (k_j, 1),   t_ja = queries[d] + sum_c queries[c] k_jc,   first <= j < last,

    keys (d + 1, length) with the masses in the last row, queries (d + 1, 8) with what is added to the exponents in
    the last row, sums (d + 1, 8) with those of the weights in the last row. equal: all masses are one. listed: an
    array of numbers e follows, and the keys are j = 2 e[i] and 2 e[i] + 1 for first <= i < last.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args

        def data(place: int) -> Any:
            return context.make_array(kinds[place])(context, builder, args[place]).data

        def row(base: Any, c: int) -> Any:
            return builder.bitcast(builder.gep(base, [ir.Constant(INTEGER, LANES * c)]), VECTOR.as_pointer())

        keys, queries, sums = data(0), data(4), data(5)
        starts = [builder.gep(keys, [builder.mul(args[1], ir.Constant(INTEGER, c))]) for c in range(d + 1)]
        z = [builder.load(row(queries, c), align=8) for c in range(d + 1)]
        before = [builder.load(row(sums, c), align=8) for c in range(d + 1)]

        def summed(at: Any, so_far: list[Any]) -> list[Any]:
            """With the weights of the key at this place."""
            k = [everywhere(builder, starts[c], at) for c in range(d if equal else d + 1)]
            t = z[d]
            for c in range(d):
                t = multiply_add(builder, z[c], k[c], t)
            e = power_of_two(builder, t, coefficients)
            weight = e if equal else builder.fmul(e, k[d], flags=FLAGS)
            more = [multiply_add(builder, weight, k[c], so_far[c]) for c in range(d)]
            return [*more, builder.fadd(so_far[d], weight, flags=FLAGS)]

        def following(j: Any, held: list[Any]) -> list[Any]:
            if not listed:
                return summed(j, held)
            even = builder.shl(builder.load(builder.gep(data(6), [j])), ir.Constant(INTEGER, 1))
            return summed(builder.add(even, ir.Constant(INTEGER, 1)), summed(even, held))

        for c, after in enumerate(loop(builder, args[2], args[3], before, following)):
            builder.store(after, row(sums, c), align=8)
        return context.get_dummy_value()

    def add(_context: Any, keys: Any, _length: Any, _first: Any, _last: Any, queries: Any, sums: Any) -> Any:
        return types.void(keys, types.intp, types.intp, types.intp, queries, sums), codegen

    def add_listed(
        _context: Any, keys: Any, _length: Any, _first: Any, _last: Any, queries: Any, sums: Any, pairs: Any
    ) -> Any:
        return types.void(keys, types.intp, types.intp, types.intp, queries, sums, pairs), codegen

    return intrinsic(add_listed if listed else add)


_in_the_plane, _in_space = _vectors(2), _vectors(3)
_listed, _listed_coarsely = _vectors(3, listed=True), _vectors(3, COARSE, equal=True, listed=True)


# Functions of their own: the flags of whoever calls would reach the roundings of the exponential.
@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def sums_in_the_plane(keys: Any, length: int, first: int, last: int, queries: Any, sums: Any) -> None:
    """sums (3, 8) += what the keys first, ..., last - 1 add to them (`_vectors`)."""
    wide()
    _in_the_plane(keys, length, first, last, queries, sums)


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def sums_in_space(keys: Any, length: int, first: int, last: int, queries: Any, sums: Any) -> None:
    """sums (4, 8) += what the keys first, ..., last - 1 add to them (`_vectors`)."""
    wide()
    _in_space(keys, length, first, last, queries, sums)


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def sums_of_pairs(keys: Any, length: int, pairs: Any, count: int, queries: Any, sums: Any) -> None:
    """sums (4, 8) += what the keys 2 e and 2 e + 1 add to them, e in pairs[:count]."""
    wide()
    _listed(keys, length, 0, count, queries, sums, pairs)


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def coarse_sums_of_pairs(keys: Any, length: int, pairs: Any, count: int, queries: Any, sums: Any) -> None:
    """`sums_of_pairs` of keys that all have mass one, to `COARSE_ERROR`."""
    wide()
    _listed_coarsely(keys, length, 0, count, queries, sums, pairs)
