"""Caps of keys within an angle, and pairs of keys split by their score: lists, eight entries at a time.

Which of eight caps, or of four pairs, go into a list is a number of so many bits, and a table has their places one
after the other: no branch, which would be a wrong guess for every other one. Written with llvmlite
(`attention.lanes`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import njit, types
from numba.extending import intrinsic

from metastable.attention.exp2 import NO_REASSOCIATION, wide
from metastable.attention.lanes import FLAGS, INTEGER, INTEGERS, LANES, VECTOR, constant, loop, spread
from metastable.attention.lasting import written
from metastable.attention.nearby.caps import ROUNDING

_PAIRS = LANES // 2
_D = 3
_DOUBLE = written(ir.DoubleType())
_WHOLE, _NUMBER = types.intp, types.float64


def _places(bits: int) -> np.ndarray:
    """(2^bits, bits), flat: places of the bits of a number that are set, then of the others."""
    rows = [sorted(range(bits), key=lambda e: not m >> e & 1) for m in range(2**bits)]
    return np.array(rows, dtype=np.int8).ravel()


PLACES_OF_FOUR, PLACES_OF_EIGHT = _places(4), _places(8)


class _Writer:
    """What both loops over a list of groups of eight are written with."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self.context, self.builder, self.kinds, self.args = context, builder, signature.args, args

    def data(self, place: int) -> Any:
        return self.context.make_array(self.kinds[place])(self.context, self.builder, self.args[place]).data

    def at(self, base: Any, place: Any, kind: Any) -> Any:
        return self.builder.bitcast(self.builder.gep(base, [place]), kind.as_pointer())

    def times(self, value: Any, factor: int) -> Any:
        return self.builder.mul(value, ir.Constant(INTEGER, factor))

    def along(self, factors: list[Any], rows: list[Any], start: Any | None = None) -> Any:
        """start + sum_c factors[c] rows[c]."""
        value = start
        for factor, row in zip(factors, rows, strict=True):
            product = self.builder.fmul(factor, row, flags=FLAGS)
            value = product if value is None else self.builder.fadd(product, value, flags=FLAGS)
        return value

    def append(self, chosen: Any, first: Any, table: Any, target: Any, count: Any) -> Any:
        """first + i for the places i that are chosen, into the target behind `count` others; how many then."""
        many = chosen.type.count
        bits = self.builder.zext(self.builder.bitcast(chosen, ir.IntType(many)), INTEGER)
        kind = ir.VectorType(INTEGER, many)
        places = self.builder.load(
            self.at(table, self.times(bits, many), ir.VectorType(ir.IntType(8), many)), align=1
        )
        numbers = self.builder.add(self.builder.zext(places, kind), spread(self.builder, first, kind))
        self.builder.store(numbers, self.at(target, count, kind), align=8)
        return self.builder.add(count, self.builder.ctpop(bits))

    def over(self, listed: Any, count: Any, lists: int, body: Any) -> list[Any]:
        """body(number, counts) for the numbers listed[:count], from counts 0 to those it returns."""
        zero = ir.Constant(INTEGER, 0)

        def of_number(e: Any, counts: list[Any]) -> list[Any]:
            return body(self.builder.load(self.builder.gep(listed, [e])), counts)

        return loop(self.builder, zero, count, [zero] * lists, of_number)


def _best(
    _context: Any, mean: Any, _length: Any, log_mass: Any, _c0: Any, _c1: Any, _c2: Any, top: Any, where: Any
) -> Any:
    """`best_run` of every eighth run."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write = _Writer(context, builder, signature, args)
        means, masses = write.data(0), write.data(2)
        starts = [builder.gep(means, [write.times(args[1], c)]) for c in range(_D)]
        centre = [spread(builder, args[3 + c], VECTOR) for c in range(_D)]

        def of_eight(at: Any, held: list[Any]) -> list[Any]:
            most, place = held
            rows = [builder.load(write.at(row, at, VECTOR), align=8) for row in (*starts, masses)]
            score = write.along(centre, rows[:_D], rows[_D])
            better = builder.fcmp_ordered(">", score, most)
            number = spread(builder, at, INTEGERS)
            return [builder.select(better, score, most), builder.select(better, number, place)]

        none = [constant(-1e308), ir.Constant(INTEGERS, [0] * LANES)]
        most, place = loop(builder, ir.Constant(INTEGER, 0), args[1], none, of_eight, LANES)
        for value, out, kind in ((most, 6, VECTOR), (place, 7, INTEGERS)):
            builder.store(value, builder.bitcast(write.data(out), kind.as_pointer()), align=8)
        return context.get_dummy_value()

    return types.void(mean, _WHOLE, log_mass, _NUMBER, _NUMBER, _NUMBER, top, where), codegen


def _within(
    _context: Any, axis: Any, _length: Any, cosine: Any, sine: Any, runs: Any, _count: Any, _c0: Any, _c1: Any,
    _c2: Any, _cosine: Any, _sine: Any, places: Any, out: Any,
) -> Any:  # fmt: skip
    """`caps_within`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write = _Writer(context, builder, signature, args)
        axes, cosines, sines, table, target = (write.data(place) for place in (0, 2, 3, 11, 12))
        starts = [builder.gep(axes, [write.times(args[1], c)]) for c in range(_D)]
        factors = [spread(builder, args[6 + c], VECTOR) for c in range(_D)]
        factors += [spread(builder, builder.fsub(ir.Constant(_DOUBLE, 0.0), args[9]), VECTOR)]
        factors += [spread(builder, args[10], VECTOR)]
        least = constant(-ROUNDING)

        def body(run: Any, counts: list[Any]) -> list[Any]:
            base = write.times(run, LANES)
            rows = [builder.load(write.at(row, base, VECTOR), align=8) for row in (*starts, cosines, sines)]
            inside = builder.fcmp_ordered(">", write.along(factors, rows), least)
            return [write.append(inside, base, table, target, counts[0])]

        return write.over(write.data(4), args[5], 1, body)[0]

    numbers = [_NUMBER] * 5
    return _WHOLE(axis, _WHOLE, cosine, sine, runs, _WHOLE, *numbers, places, out), codegen


def _split(
    _context: Any, keys: Any, _length: Any, log_mass: Any, groups: Any, _count: Any, _c0: Any, _c1: Any, _c2: Any,
    _shift: Any, _low: Any, _high: Any, places: Any, of_centre: Any, near: Any, far: Any, counts: Any,
) -> Any:  # fmt: skip
    """`split_pairs`, arrays flat."""
    singles, half = ir.VectorType(ir.FloatType(), LANES), ir.VectorType(_DOUBLE, _PAIRS)
    indices = ir.VectorType(ir.IntType(32), _PAIRS)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        write = _Writer(context, builder, signature, args)
        keys_at, log_masses, table, scores, *lists, out = (write.data(place) for place in (0, 2, *range(11, 16)))
        starts = [builder.gep(keys_at, [write.times(args[1], c)]) for c in range(_D)]
        centre = [spread(builder, args[5 + c], VECTOR) for c in range(_D)]
        shift, low, high = (spread(builder, args[8 + i], kind) for i, kind in enumerate((VECTOR, half, half)))

        def body(group: Any, counts: list[Any]) -> list[Any]:
            base = write.times(group, LANES)
            s = write.along(centre, [builder.load(write.at(row, base, VECTOR), align=8) for row in starts])
            of_mass = builder.load(write.at(log_masses, base, VECTOR), align=8)
            shifted = builder.fadd(builder.fsub(s, shift, flags=FLAGS), of_mass, flags=FLAGS)
            builder.store(builder.fptrunc(shifted, singles), write.at(scores, base, singles), align=4)
            first, second = (
                builder.shuffle_vector(s, s, ir.Constant(indices, list(range(i, LANES, 2)))) for i in range(2)
            )
            top = builder.select(builder.fcmp_ordered(">", first, second), first, second)
            near = builder.fcmp_ordered(">=", top, high)
            far = builder.and_(builder.fcmp_ordered(">", top, low), builder.not_(near))
            first_pair = write.times(group, _PAIRS)
            return [
                write.append(chosen, first_pair, table, target, count)
                for chosen, target, count in zip((near, far), lists, counts, strict=True)
            ]

        for place, count in enumerate(write.over(write.data(3), args[4], 2, body)):
            builder.store(count, builder.gep(out, [ir.Constant(INTEGER, place)]))
        return context.get_dummy_value()

    numbers = [_NUMBER] * 6
    arrays = (places, of_centre, near, far, counts)
    return types.void(keys, _WHOLE, log_mass, groups, _WHOLE, *numbers, *arrays), codegen


_best_of_eight: Any
_caps: Any
_pairs: Any
_best_of_eight, _caps, _pairs = intrinsic(_best), intrinsic(_within), intrinsic(_split)


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def best_run(means: Any, count: int, log_mass: Any, c0: float, c1: float, c2: float, top: Any, where: Any) -> int:
    """The run with the largest m e^{<c, mean of its keys>}, of means (3, count); top, where: memory for eight."""
    wide()
    _best_of_eight(means, count, log_mass, c0, c1, c2, top, where)
    best = 0
    for a in range(1, LANES):
        best = a if top[a] > top[best] else best
    return int(where[best]) + best


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def caps_within(
    axes: Any, cosines: Any, sines: Any, runs: Any, count: int, c0: float, c1: float, c2: float, cosine: float,
    sine: float, places: Any, out: Any,
) -> int:  # fmt: skip
    """Numbers of the caps 8 r + i, r in runs[:count], that may hold a key within an angle of a unit vector c, into
    `out`, which has room for eight more; how many there are.

    cosine, sine: of that angle, at most pi/2; (0, `caps.NEVER`) for any other. places: `PLACES_OF_EIGHT`.
    """
    wide()
    return _caps(axes, len(cosines), cosines, sines, runs, count, c0, c1, c2, cosine, sine, places, out)


@njit(cache=True, nogil=True, fastmath=NO_REASSOCIATION, error_model="numpy")
def split_pairs(
    keys: Any, length: int, log_mass: Any, groups: Any, count: int, c0: float, c1: float, c2: float, shift: float,
    low: float, high: float, places: Any, of_centre: Any, near: Any, far: Any, counts: Any,
) -> None:  # fmt: skip
    """Of the pairs (2 e, 2 e + 1) of keys in groups[:count], those whose larger score s = <c, k> is at least `high`
    into `near`, and those above `low` into `far`, both with room for four more; how many there are, into `counts`.

    of_centre[j] = s_j - shift + log_mass[j], in single precision. places: `PLACES_OF_FOUR`.
    """
    wide()
    _pairs(
        keys, length, log_mass, groups, count, c0, c1, c2, shift, low, high, places, of_centre, near, far, counts
    )
