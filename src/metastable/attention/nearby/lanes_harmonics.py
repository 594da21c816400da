"""Eight tokens in the eight places of a vector: sums over the degrees of harmonics of one order, in registers.

Written with llvmlite (`attention.lanes`): one degree is a step of the recurrence, a multiplication for every column
of a series, and one for every column that is gathered; numba stores and loads each of them in between.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from metastable.attention.exp2 import REDUCTION, wide
from metastable.attention.lanes import (
    FLAGS,
    INTEGER,
    LANES,
    VECTOR,
    constant,
    everywhere,
    loop,
    multiply_add,
    spread,
)
from metastable.attention.nearby.harmonics import FACTOR

_DEGREES = len(FACTOR)


def _steps() -> np.ndarray:
    """Flat [m, l, 2]: R_lm = a z R_{l-1,m} - b r^2 R_{l-2,m}."""
    table = np.zeros((_DEGREES, _DEGREES, 2))
    for m in range(_DEGREES):
        for l in range(m + 1, _DEGREES):
            table[m, l] = (2.0 * l - 1.0) / FACTOR[l, m], FACTOR[l - 1, m] / FACTOR[l, m]
    return table.ravel()


STEPS = _steps()


def _vectors(columns: int, gathers: int) -> Any:
    """climb(m, degree, scale, steps, series, z, square, weights, stride, at, rows, part, gathered), arrays flat:

        part[f, a] = sum_l series[m, l, f] w_l R_lm(a),   gathered[l, g, :] += w_l R_lm(a) rows[g, a],

    of the tokens a = at, ..., at + 7, l = m, ..., degree, without the factor cos or sin(m phi) of R_lm, which is
    `scale` for l = m. w_l = weights[l, a] where anything is gathered, else one. stride: of tokens in all arrays.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds = signature.args

        def data(place: int) -> Any:
            return context.make_array(kinds[place])(context, builder, args[place]).data

        def whole(number: int) -> Any:
            return ir.Constant(INTEGER, number)

        def vector(base: Any, at: Any) -> Any:
            return builder.bitcast(builder.gep(base, [at]), VECTOR.as_pointer())

        def held(base: Any, at: Any) -> Any:
            return builder.load(vector(base, at), align=8)

        m, degree, scale, stride, at = args[0], args[1], args[2], args[8], args[9]
        steps, series, weights, part, gathered = data(3), data(4), data(7), data(11), data(12)
        z, square = held(data(5), at), held(data(6), at)
        places = [builder.add(builder.mul(stride, whole(g)), at) for g in range(max(columns, gathers))]
        rows = [held(data(10), places[g]) for g in range(gathers)]
        begun = spread(builder, scale)
        of_order = builder.mul(m, builder.add(degree, whole(1)))
        of_steps = builder.mul(m, whole(_DEGREES))

        def of_degree(l: Any, held_so_far: list[Any]) -> list[Any]:
            before, now, *sums = held_so_far
            weight = now
            if gathers:
                weight = builder.fmul(now, held(weights, builder.add(builder.mul(l, stride), at)), flags=FLAGS)
            first = builder.mul(builder.add(of_order, l), whole(columns))
            after = [
                multiply_add(builder, everywhere(builder, series, builder.add(first, whole(f))), weight, sums[f])
                for f in range(columns)
            ]
            for g in range(gathers):
                to = vector(
                    gathered, builder.mul(builder.add(builder.mul(l, whole(gathers)), whole(g)), whole(LANES))
                )
                builder.store(multiply_add(builder, weight, rows[g], builder.load(to, align=8)), to, align=8)
            following = builder.add(l, whole(1))
            step = builder.mul(builder.add(of_steps, following), whole(2))
            on = builder.fmul(everywhere(builder, steps, step), z, flags=FLAGS)
            back = builder.fmul(everywhere(builder, steps, builder.add(step, whole(1))), square, flags=FLAGS)
            back = builder.fmul(back, before, flags=FLAGS)
            higher = builder.fsub(builder.fmul(on, now, flags=FLAGS), back, flags=FLAGS)
            return [now, higher, *after]

        begin = [constant(0.0), begun, *[constant(0.0)] * columns]
        _, _, *after = loop(builder, m, builder.add(degree, whole(1)), begin, of_degree)
        for f in range(columns):
            builder.store(after[f], vector(part, places[f]), align=8)
        return context.get_dummy_value()

    def climb(
        _context: Any, m: Any, degree: Any, scale: Any, steps: Any, series: Any, z: Any, square: Any, weights: Any,
        stride: Any, at: Any, rows: Any, part: Any, gathered: Any,
    ) -> Any:  # fmt: skip
        whole = types.intp
        kinds = whole, whole, types.float64, steps, series, z, square, weights, whole, whole, rows, part, gathered
        return types.void(*kinds), codegen

    return intrinsic(climb)


_of_queries, _of_keys = _vectors(10, 8), _vectors(6, 0)


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def look_and_send(
    m: int, degree: int, scale: float, series: Any, z: Any, square: Any, weights: Any, n: int, rows: Any, part: Any,
    gathered: Any,
) -> None:  # fmt: skip
    """`_vectors` of ten columns, and eight that are gathered, for n tokens, padded to eight, of arrays' length."""
    wide()
    for at in range(0, n, LANES):
        _of_queries(m, degree, scale, STEPS, series, z, square, weights, len(z), at, rows, part, gathered)


@njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
def look(m: int, degree: int, scale: float, series: Any, z: Any, square: Any, n: int, part: Any) -> None:
    """`_vectors` of six columns, with weights of one."""
    wide()
    for at in range(0, n, LANES):
        _of_keys(m, degree, scale, STEPS, series, z, square, square, len(z), at, square, part, square)
