"""Eight queries against groups of eight keys, backwards: one exponential serves the sums of both.

The eight keys of a group are in the places of a vector, and queries come one after the other. What these send to
the keys is summed in registers. Their own sums over keys are kept as vectors, of the keys of each place, that wait
in the first cache; whoever asked for them adds up the places once, at the end.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from metastable.attention.exp2 import COEFFICIENTS, NO_REASSOCIATION, wide
from metastable.attention.lanes import FLAGS, INTEGER, LANES, VECTOR, everywhere, loop, multiply_add, power_of_two
from metastable.attention.nearby.lanes import COARSE

ROWS = 11
"""Numbers of a query: q log2(e), -log2 Z, g, -s, q."""


def _vectors(coefficients: tuple[float, ...]) -> Any:
    """add(keys, length, first, last, queries, sums, sent), arrays flat, first and last multiples of eight:

        sums[a, :] += w_aj c_aj k_j,   sent[:, j] += sum_a w_aj (g_a + c_aj q_a),   first <= j < last,
        w_aj = m_j 2^{t_aj},   t_aj = <q_a, k_j> log2(e) - log2 Z_a,   c_aj = <g_a, k_j> - s_a,

    keys (4, length) with the masses in the last row, queries (8, `ROWS`), sums (8, 3, 8) the last of which are the
    places of keys, sent (3, length).
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args

        def data(place: int) -> Any:
            return context.make_array(kinds[place])(context, builder, args[place]).data

        def vector(base: Any, at: Any) -> Any:
            return builder.bitcast(builder.gep(base, [at]), VECTOR.as_pointer())

        def whole(number: int) -> Any:
            return ir.Constant(INTEGER, number)

        keys, queries, sums, sent = data(0), data(4), data(5), data(6)
        starts = [builder.gep(keys, [builder.mul(args[1], whole(c))]) for c in range(4)]
        sent_to = [builder.gep(sent, [builder.mul(args[1], whole(c))]) for c in range(3)]

        def of_group(first: Any, _held: list[Any]) -> list[Any]:
            k = [builder.load(vector(starts[c], first), align=8) for c in range(4)]
            to = [vector(sent_to[c], first) for c in range(3)]
            given = [builder.load(at, align=8) for at in to]
            for a in range(LANES):
                row = [everywhere(builder, queries, whole(ROWS * a + place)) for place in range(ROWS)]
                t, change = row[3], row[7]
                for c in range(3):
                    t = multiply_add(builder, row[c], k[c], t)
                    change = multiply_add(builder, row[4 + c], k[c], change)
                weight = builder.fmul(power_of_two(builder, t, coefficients), k[3], flags=FLAGS)
                change = builder.fmul(weight, change, flags=FLAGS)
                for c in range(3):
                    at = vector(sums, whole(LANES * (3 * a + c)))
                    builder.store(multiply_add(builder, change, k[c], builder.load(at, align=8)), at, align=8)
                    given[c] = multiply_add(builder, weight, row[4 + c], given[c])
                    given[c] = multiply_add(builder, change, row[8 + c], given[c])
            for c in range(3):
                builder.store(given[c], to[c], align=8)
            return []

        loop(builder, args[2], args[3], [], of_group, LANES)
        return context.get_dummy_value()

    def add(
        _context: Any, keys: Any, _length: Any, _first: Any, _last: Any, queries: Any, sums: Any, sent: Any
    ) -> Any:
        return types.void(keys, types.intp, types.intp, types.intp, queries, sums, sent), codegen

    return intrinsic(add)


_exactly, _coarsely = _vectors(COEFFICIENTS), _vectors(COARSE)


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def sums_both_ways(keys: Any, length: int, first: int, last: int, queries: Any, sums: Any, sent: Any) -> None:
    """Add to sums (8, 3, 8) of eight queries, and to those (3, length) of the keys first, ..., last - 1."""
    wide()
    _exactly(keys, length, first, last, queries, sums, sent)


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def coarse_sums_both_ways(
    keys: Any, length: int, first: int, last: int, queries: Any, sums: Any, sent: Any
) -> None:
    """`sums_both_ways` with weights that err by `lanes.COARSE_ERROR`."""
    wide()
    _coarsely(keys, length, first, last, queries, sums, sent)
