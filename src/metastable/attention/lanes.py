"""Vectors of eight float64 for compiled loops, written with llvmlite, numba's own compiler: numba has no such type.

Eight queries, or keys, are in the eight places of a vector, and sums stay in registers over any range, however
short: that is what numba does not make of a loop inside a loop. Instructions are written as they are to be rounded;
whoever calls a function of them must not have flags that reassociate, which would reach these instructions, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]

from metastable.attention.exp2 import ROUND_64
from metastable.attention.lasting import written

LANES = 8
"""Queries at once: float64 in a register of 512 bits; narrower processors take two or four of theirs."""
FLAGS = ("contract", "nnan", "ninf", "nsz")
"""Of multiplications and additions: a product and a sum become one instruction, and numbers are finite."""
VECTOR, INTEGER = written(ir.VectorType(ir.DoubleType(), LANES)), written(ir.IntType(64))
INTEGERS = written(ir.VectorType(INTEGER, LANES))
LEAST = -1000.0
"""Smaller exponents are raised to it (`exp2`)."""


def constant(value: float) -> Any:
    """The same number in all places."""
    return ir.Constant(VECTOR, [value] * LANES)


def multiply_add(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a b + c."""
    return builder.fadd(builder.fmul(a, b, flags=FLAGS), c, flags=FLAGS)


def spread(builder: Any, value: Any, kind: Any = VECTOR) -> Any:
    """The value in all places of a vector of this kind."""
    undefined, places = ir.Constant(kind, ir.Undefined), ir.VectorType(ir.IntType(32), kind.count)
    one = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(places, [0] * kind.count))


def everywhere(builder: Any, base: Any, at: Any) -> Any:
    """The number at base[at] in all places."""
    return spread(builder, builder.load(builder.gep(base, [at])))


def power_of_two(builder: Any, t: Any, coefficients: tuple[float, ...], raised: bool = True) -> Any:
    """2^t as in `exp2`, t <= 1000; raised: smaller t than `LEAST` are taken for it, else there must be none."""
    return powers_of_two(builder, [t], coefficients, raised)[0]


def powers_of_two(
    builder: Any, exponents: list[Any], coefficients: tuple[float, ...], raised: bool = True
) -> list[Any]:
    """`power_of_two` of several, step by step side by side: each is a chain whose instructions wait for each other,
    and a processor sees few chains ahead."""
    if raised:
        least = constant(LEAST)
        exponents = [builder.select(builder.fcmp_ordered(">", t, least), t, least) for t in exponents]
    rounded = [builder.fadd(t, constant(ROUND_64)) for t in exponents]
    whole = [builder.fsub(s, constant(ROUND_64)) for s in rounded]
    remainders = [builder.fsub(t, k) for t, k in zip(exponents, whole, strict=True)]
    powers = [constant(coefficients[-1])] * len(exponents)
    for coefficient in reversed(coefficients[:-1]):
        pairs = zip(powers, remainders, strict=True)
        powers = [multiply_add(builder, p, r, constant(coefficient)) for p, r in pairs]
    shift = ir.Constant(INTEGERS, [52] * LANES)
    shifted = [builder.shl(builder.bitcast(s, INTEGERS), shift) for s in rounded]
    bits = [builder.add(builder.bitcast(p, INTEGERS), k) for p, k in zip(powers, shifted, strict=True)]
    return [builder.bitcast(b, VECTOR) for b in bits]


def loop(
    builder: Any, first: Any, last: Any, before: list[Any], body: Callable[[Any, list[Any]], list[Any]],
    step: int = 1,
) -> list[Any]:  # fmt: skip
    """What body(j, held) makes of `before`, held in registers, for j = first, first + step, ... below last."""
    entry = builder.block
    inside, end = builder.append_basic_block("inside"), builder.append_basic_block("end")
    builder.cbranch(builder.icmp_signed("<", first, last), inside, end)
    builder.position_at_end(inside)
    j = builder.phi(INTEGER)
    held = [builder.phi(value.type) for value in before]
    after = body(j, held)
    following = builder.add(j, ir.Constant(INTEGER, step))
    latch = builder.block
    builder.cbranch(builder.icmp_signed("<", following, last), inside, end)
    for phi, start, then in zip([j, *held], [first, *before], [following, *after], strict=True):
        phi.add_incoming(start, entry)
        phi.add_incoming(then, latch)
    builder.position_at_end(end)
    final = [builder.phi(value.type) for value in before]
    for phi, start, then in zip(final, before, after, strict=True):
        phi.add_incoming(start, entry)
        phi.add_incoming(then, latch)
    return final
