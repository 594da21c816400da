"""Compiled pieces of `sphere.ring_sums`, on vectors of eight (`attention.lanes`): Bessel functions for eight lines
of targets at once, and products of them with weights of eight columns.

terms[m, b, i] belongs to mode m, ring b of nodes and line i of eight.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

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
from metastable.attention.lasting import lasting

SEED = 1e-280
"""Size from which recurrences grow: by less than 1e270, with the starts of `sphere.ring_sums`."""


class _Vectors:
    """Arrays of compiled code as rows of eight numbers."""

    def __init__(self, context: Any, builder: Any, signature: Any, args: Any) -> None:
        self.context, self.builder, self.signature, self.args = context, builder, signature, args

    def data(self, place: int) -> Any:
        """Where the numbers of an argument begin."""
        return self.context.make_array(self.signature.args[place])(
            self.context, self.builder, self.args[place]
        ).data

    def row(self, base: Any, number: Any) -> Any:
        """Where its eight numbers of that row are."""
        at = self.builder.mul(number, ir.Constant(INTEGER, LANES))
        return self.builder.bitcast(self.builder.gep(base, [at]), VECTOR.as_pointer())

    def load(self, base: Any, number: Any) -> Any:
        """The eight numbers."""
        return self.builder.load(self.row(base, number), align=8)

    def store(self, values: Any, base: Any, number: Any) -> None:
        """Puts them there."""
        self.builder.store(values, self.row(base, number), align=8)

    def each(self, base: Any, number: Any) -> list[Any]:
        """Every number of a row in all places."""
        at = self.builder.mul(number, ir.Constant(INTEGER, LANES))
        places = [self.builder.add(at, ir.Constant(INTEGER, i)) for i in range(LANES)]
        return [everywhere(self.builder, base, place) for place in places]


@cache
def downwards(abreast: int) -> Any:
    """downwards(inverse, start, low, top, b, width, terms, total): c I_m(x) of all m <= top, and their sum over m.

    I_{m-1} = (2m/x) I_m + I_{m+1} for `abreast` rings from b on, side by side, since each is a chain whose steps
    wait for each other. inverse = 2/x and the m at which a line starts from `SEED` are (rings, 8), low <= start <=
    top; terms (M, width, 8); total (rings, 8) of both signs of m.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors = _Vectors(context, builder, signature, args)
        inverse, start, terms, total = (vectors.data(place) for place in (0, 1, 6, 7))
        _, _, low, top, b, width, _, _ = args
        rings = [builder.add(b, ir.Constant(INTEGER, i)) for i in range(abreast)]
        factors, starts = ([vectors.load(base, ring) for ring in rings] for base in (inverse, start))

        def down(j: Any, held: list[Any], joining: bool) -> list[Any]:
            m, row, after = held[0], builder.mul(builder.sub(top, j), width), []
            for i, ring in enumerate(rings):
                now, above, so_far = held[1 + 3 * i : 4 + 3 * i]
                if joining:
                    here = builder.fcmp_ordered("==", m, starts[i])
                    now = builder.select(here, constant(SEED), now)
                vectors.store(now, terms, builder.add(row, ring))
                below = multiply_add(builder, builder.fmul(m, factors[i], flags=FLAGS), now, above)
                after += [below, now, builder.fadd(so_far, now, flags=FLAGS)]
            return [builder.fsub(m, constant(1.0), flags=FLAGS), *after]

        highest = spread(builder, builder.sitofp(top, ir.DoubleType()))
        joined = builder.add(builder.sub(top, low), ir.Constant(INTEGER, 1))
        zero = ir.Constant(INTEGER, 0)
        held = loop(
            builder, zero, joined, [highest, *[constant(0.0)] * (3 * abreast)], lambda j, h: down(j, h, True)
        )
        held = loop(builder, joined, top, held, lambda j, h: down(j, h, False))
        for i, ring in enumerate(rings):
            first, _, others = held[1 + 3 * i : 4 + 3 * i]
            vectors.store(first, terms, ring)
            vectors.store(multiply_add(builder, others, constant(2.0), first), total, ring)
        return context.get_dummy_value()

    def typed(
        _context: Any, inverse: Any, start: Any, _1: Any, _2: Any, _3: Any, _4: Any, terms: Any, total: Any
    ) -> Any:  # fmt: skip
        return types.void(inverse, start, *(types.intp,) * 4, terms, total), codegen

    return lasting(intrinsic(typed), f"downwards {abreast}")


def _gather(_context: Any, terms: Any, _1: Any, _2: Any, modes: Any, _3: Any, out: Any, _4: Any, _5: Any) -> Any:
    """gather(terms, at, count, modes, from, out, to, step):
    out[to + i step] = sum_b terms[at + b, i] modes[from + b],   b < count, i < 8, in rows of eight numbers.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors = _Vectors(context, builder, signature, args)
        terms, modes, out = (vectors.data(place) for place in (0, 3, 5))
        _, at, count, _, origin, _, to, step = args

        def added(b: Any, held: list[Any]) -> list[Any]:
            weight = vectors.load(modes, builder.add(origin, b))
            factors = vectors.each(terms, builder.add(at, b))
            return [multiply_add(builder, f, weight, total) for f, total in zip(factors, held, strict=True)]

        sums = loop(builder, ir.Constant(INTEGER, 0), count, [constant(0.0)] * LANES, added)
        for i, total in enumerate(sums):
            place = builder.add(to, builder.mul(step, ir.Constant(INTEGER, i)))
            vectors.store(total, out, place)
        return context.get_dummy_value()

    return _typed(terms, modes, out), codegen


def _give_back(
    _context: Any, terms: Any, _1: Any, _2: Any, received: Any, _3: Any, sent: Any, _4: Any, _5: Any
) -> Any:  # fmt: skip
    """give_back(terms, at, count, received, to, sent, from, step):
    received[to + b] += sum_i terms[at + b, i] sent[from + i step],   b < count, i < 8, in rows of eight numbers.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors = _Vectors(context, builder, signature, args)
        terms, received, sent = (vectors.data(place) for place in (0, 3, 5))
        _, at, count, _, to, _, origin, step = args
        places = [builder.add(origin, builder.mul(step, ir.Constant(INTEGER, i))) for i in range(LANES)]
        told = [vectors.load(sent, place) for place in places]

        def added(b: Any, _held: list[Any]) -> list[Any]:
            here = builder.add(to, b)
            grown = vectors.load(received, here)
            for factor, row in zip(vectors.each(terms, builder.add(at, b)), told, strict=True):
                grown = multiply_add(builder, factor, row, grown)
            vectors.store(grown, received, here)
            return []

        loop(builder, ir.Constant(INTEGER, 0), count, [], added)
        return context.get_dummy_value()

    return _typed(terms, received, sent), codegen


def _typed(first: Any, second: Any, third: Any) -> Any:
    return types.void(first, types.intp, types.intp, second, types.intp, third, types.intp, types.intp)


gather: Callable[..., None] = lasting(intrinsic(_gather), "gather modes")
give_back: Callable[..., None] = lasting(intrinsic(_give_back), "give back modes")
