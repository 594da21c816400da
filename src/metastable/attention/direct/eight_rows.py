"""Softmax sums of eight rows at a time, over all keys or over those before each row: float64, on the CPU.

Eight queries are in the places of a vector and take one key after the other, so that a row may end anywhere: over
the keys that all eight see there is nothing to mask, and over the few that some of them see the others' weights are
zero. Scores are to base 2 and shifted as in `fused`: rows with beta |q_i| max_j |k_j| below a limit by that bound,
others by their running maximum over `CHUNK`s of keys. Every place is summed by itself and in the order of the keys,
so that the digits of a row depend neither on its group nor on threads.
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

from metastable.attention.direct.exponents import DOUBLE
from metastable.attention.exp2 import COEFFICIENTS, LN_2, wide
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

CHUNK = 256
"""Keys summed one after the other before they are added to what came before, which keeps sums accurate: with 8 + 8
columns they are in the first cache, too, while `_GROUPS` groups of rows meet them."""
_GROUPS = 8
_ABREAST = 8
"""Keys whose exponentials are computed side by side. With 1, 2, 4 and 8 a pair of d = 3 took .35, .36, .33 and .29
nanoseconds on a Zen 5, of d = 8 .70, .68, .64 and .49; with vectors of 256 bits 8 is as fast as any."""
_NOTHING = -3e38
"""The largest score over no key."""
_UNSHIFTED = -1e30
"""The shift of a row that is to be shifted by its maximum and has seen no key."""


@cache
def rows_kernel(d: int, d_v: int, in_exponent: bool, causal: bool) -> Callable[..., None]:
    """The compiled loop for one pair of dimensions; kept on disk. Called as

        kernel(queries, keys, count, scale, radius, log_mass, offset, start, stop, mean, log_partition):
        mean_i = sum_j m_j 2^t_ij v_j / sum_j m_j 2^t_ij,   log_partition_i = log_mass + log sum_j m_j 2^t_ij,

    t_ij = scale <q_i, k_j>, for the rows start <= i < stop over the keys j < count, if causal over those with
    j < i + offset alone; a row that sees no mass is left as it is. keys (n, d + d_v + 1) are rows [k | m v | m]
    with 0 <= m <= 1, or [k | v | log2 m] if in_exponent, and radius is the length of the longest.

    Keys of mass zero may be among those of a causal kernel if their logarithms are in the exponents, or if no row
    has a bound above `DOUBLE.bound`; a kernel over all keys takes none.
    """
    headroom, floor = DOUBLE.headroom, DOUBLE.floor
    limit = DOUBLE.bound_with_mass if in_exponent else DOUBLE.bound
    largest = _largest(d, d_v, in_exponent, causal)
    sums, raised_sums = (_sums(d, d_v, in_exponent, causal, raised) for raised in (False, True))

    @njit(nogil=True, cache=True, error_model="numpy")
    def kernel(
        queries: Any,
        keys: Any,
        count: int,
        scale: float,
        radius: float,
        log_mass: float,
        offset: int,
        start: int,
        stop: int,
        mean: Any,
        log_partition: Any,
    ) -> None:
        wide()
        z, totals = np.empty((_GROUPS, d + 1, LANES)), np.empty((_GROUPS, d_v + 1, LANES))
        part, bounds = np.empty((d_v + 1, LANES)), np.empty((_GROUPS, LANES))
        top, skipped, sharp = np.empty(LANES), np.empty(LANES, np.bool_), np.empty(_GROUPS, np.bool_)
        for first in range(start, stop, _GROUPS * LANES):
            last = min(first + _GROUPS * LANES, stop)
            z[:], totals[:], bounds[:], sharp[:] = 0.0, 0.0, 0.0, False
            for i in range(first, last):
                g, a = divmod(i - first, LANES)
                square = 0.0
                for c in range(d):
                    z[g, c, a] = scale * queries[i, c]
                    square += z[g, c, a] * z[g, c, a]
                bounds[g, a] = math.sqrt(square) * radius
                running = bounds[g, a] > limit or (causal and in_exponent)
                z[g, d, a] = -_UNSHIFTED if running else -bounds[g, a]
                sharp[g] = sharp[g] or running
            seen = min(last - 1 + offset, count) if causal else count
            for low in range(0, seen, CHUNK):
                for g in range((last - first + LANES - 1) // LANES):
                    high = min(low + CHUNK, count)
                    common = high  # the keys below are seen by the eight rows
                    row = first + g * LANES
                    if causal:
                        high = min(high, min(row + LANES, last) - 1 + offset)
                        common = min(max(row + offset, low), high)
                    if high <= low:
                        continue
                    even = low + (common - low) // _ABREAST * _ABREAST
                    skipped[:] = False
                    if sharp[g]:
                        wanted = False
                        for a in range(LANES):
                            wanted = wanted or bounds[g, a] + z[g, d, a] > headroom
                        if wanted:
                            largest(keys, low, even, high, row + offset, z, g, top)
                            for a in range(min(LANES, last - row)):
                                shift = -z[g, d, a]
                                if bounds[g, a] - shift <= headroom:
                                    continue
                                if top[a] > shift:
                                    rescale = math.exp2(max(shift - top[a], -2000.0))
                                    for c in range(d_v + 1):
                                        totals[g, c, a] *= rescale
                                    z[g, d, a] = -top[a]
                                else:
                                    skipped[a] = top[a] < shift + floor
                            if skipped[: last - row].all():
                                continue
                    if in_exponent or sharp[g]:
                        raised_sums(keys, low, even, high, row + offset, z, g, part)
                    else:
                        sums(keys, low, even, high, row + offset, z, g, part)
                    for c in range(d_v + 1):
                        for a in range(LANES):
                            totals[g, c, a] += 0.0 if skipped[a] else part[c, a]
            for i in range(first, last):
                g, a = divmod(i - first, LANES)
                weight = totals[g, d_v, a]
                if weight > 0.0:
                    for c in range(d_v):
                        mean[i, c] = totals[g, c, a] / weight
                    log_partition[i] = (math.log2(weight) - z[g, d, a]) * LN_2 + log_mass

    return kernel


class _Exponents:
    """Scores of eight queries with one key after the other, minus the shifts of the queries."""

    def __init__(self, context: Any, builder: Any, d: int, d_v: int, in_exponent: bool) -> None:
        self.context, self.builder = context, builder
        self.d, self.d_v, self.in_exponent = d, d_v, in_exponent

    def data(self, kind: Any, array: Any) -> Any:
        """Where the numbers of an array are."""
        return self.context.make_array(kind)(self.context, self.builder, array).data

    def row(self, base: Any, at: Any) -> Any:
        """Where eight numbers of an array are."""
        return self.builder.bitcast(self.builder.gep(base, [at]), VECTOR.as_pointer())

    def queries(self, base: Any, group: Any) -> list[Any]:
        """z[group]: the scaled entries, and minus the shift."""
        begin = self.builder.mul(group, ir.Constant(INTEGER, LANES * (self.d + 1)))
        places = [self.builder.add(begin, ir.Constant(INTEGER, LANES * c)) for c in range(self.d + 1)]
        return [self.builder.load(self.row(base, place), align=8) for place in places]

    def key(self, base: Any, j: Any) -> Any:
        """Where the row of a key is."""
        return self.builder.gep(base, [self.builder.mul(j, ir.Constant(INTEGER, self.d + self.d_v + 1))])

    def entry(self, key: Any, c: int) -> Any:
        """One number of the row of a key, in all places."""
        return everywhere(self.builder, key, ir.Constant(INTEGER, c))

    def of(self, z: list[Any], key: Any) -> Any:
        """t_ij - shift_i, with log2 m_j if that is in the exponents."""
        t = z[self.d]
        if self.in_exponent:
            t = self.builder.fadd(t, self.entry(key, self.d + self.d_v), flags=FLAGS)
        for c in range(self.d):
            t = multiply_add(self.builder, z[c], self.entry(key, c), t)
        return t

    def only_seen(self, values: Any, j: Any, base: Any, otherwise: float) -> Any:
        """The values of the places a with j < base + a, and another one of the rest."""
        places = ir.Constant(INTEGERS, list(range(LANES)))
        beyond = spread(self.builder, self.builder.sub(j, base), INTEGERS)
        return self.builder.select(self.builder.icmp_signed(">", places, beyond), values, constant(otherwise))


@cache
def _sums(d: int, d_v: int, in_exponent: bool, causal: bool, raised: bool) -> Any:
    """add(keys, first, even, last, base, z, g, part): part[:, a] = sum_j w_ja (v_j, 1), or (m_j v_j, m_j).

    w_ja = 2^(t_ja - shift) over first <= j < last, and if causal j < base + a, which all j < even are; even - first
    is a multiple of `_ABREAST`. raised: smaller exponents than `LEAST` occur, and are taken for it.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scores = _Exponents(context, builder, d, d_v, in_exponent)
        keys, z, part = (scores.data(signature.args[place], args[place]) for place in (0, 5, 7))
        _, first, even, last, base, _, group, _ = args
        queries = scores.queries(z, group)

        def added(places: list[Any], held: list[Any], masked: bool) -> list[Any]:
            rows = [scores.key(keys, j) for j in places]
            weights = powers_of_two(builder, [scores.of(queries, row) for row in rows], COEFFICIENTS, raised)
            for j, row, w in zip(places, rows, weights, strict=True):
                if masked:
                    w = scores.only_seen(w, j, base, 0.0)
                times = [scores.entry(row, d + c) for c in range(d_v if in_exponent else d_v + 1)]
                more = [multiply_add(builder, w, v, total) for v, total in zip(times, held, strict=False)]
                held = [*more, builder.fadd(held[d_v], w, flags=FLAGS)] if in_exponent else more
            return held

        def several(j: Any, held: list[Any]) -> list[Any]:
            places = [builder.add(j, ir.Constant(INTEGER, i)) for i in range(_ABREAST)]
            return added(places, held, False)

        held = loop(builder, first, even, [constant(0.0)] * (d_v + 1), several, _ABREAST)
        held = loop(builder, even, last, held, lambda j, so_far: added([j], so_far, causal))
        for c, total in enumerate(held):
            builder.store(total, scores.row(part, ir.Constant(INTEGER, LANES * c)), align=8)
        return context.get_dummy_value()

    return lasting(intrinsic(_signature(codegen)), f"sums of eight rows {d} {d_v} {in_exponent} {causal} {raised}")


@cache
def _largest(d: int, d_v: int, in_exponent: bool, causal: bool) -> Any:
    """largest(keys, first, even, last, base, z, g, top): top[a] = max_j t_ja over the keys of `_sums`, -3e38 over
    none."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        scores = _Exponents(context, builder, d, d_v, in_exponent)
        keys, z, top = (scores.data(signature.args[place], args[place]) for place in (0, 5, 7))
        _, first, even, last, base, _, group, _ = args
        queries = [*scores.queries(z, group)[:d], constant(0.0)]

        def larger(j: Any, held: list[Any], masked: bool) -> list[Any]:
            t = scores.of(queries, scores.key(keys, j))
            if masked:
                t = scores.only_seen(t, j, base, _NOTHING)
            return [builder.select(builder.fcmp_ordered(">", t, held[0]), t, held[0])]

        def several(j: Any, held: list[Any]) -> list[Any]:
            for i in range(_ABREAST):
                held = larger(builder.add(j, ir.Constant(INTEGER, i)), held, False)
            return held

        found = loop(builder, first, even, [constant(_NOTHING)], several, _ABREAST)
        (found,) = loop(builder, even, last, found, lambda j, so_far: larger(j, so_far, causal))
        builder.store(found, scores.row(top, ir.Constant(INTEGER, 0)), align=8)
        return context.get_dummy_value()

    return lasting(intrinsic(_signature(codegen)), f"largest of eight rows {d} {d_v} {in_exponent} {causal}")


def _signature(codegen: Callable[..., Any]) -> Callable[..., Any]:
    """What `intrinsic` asks for, of f(keys, first, even, last, base, z, g, out)."""

    def typed(_context: Any, keys: Any, _1: Any, _2: Any, _3: Any, _4: Any, z: Any, _5: Any, out: Any) -> Any:
        return types.void(keys, *(types.intp,) * 4, z, types.intp, out), codegen

    return typed
