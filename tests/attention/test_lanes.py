"""Vectors of eight float64, by small compiled functions, against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from metastable.attention.exp2 import COEFFICIENTS, wide
from metastable.attention.lanes import (
    INTEGER,
    INTEGERS,
    LANES,
    LEAST,
    VECTOR,
    constant,
    everywhere,
    loop,
    multiply_add,
    power_of_two,
    spread,
)


def compiled(instructions):
    """apply(numbers, out, first, last): out[:8] = instructions(builder, pointer to numbers, first, last)."""

    @intrinsic
    def vector(_context: Any, numbers: Any, out: Any, _first: Any, _last: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            base, to = (context.make_array(signature.args[p])(context, builder, args[p]).data for p in range(2))
            found = instructions(builder, base, args[2], args[3])
            builder.store(found, builder.bitcast(to, VECTOR.as_pointer()), align=8)
            return context.get_dummy_value()

        return types.void(numbers, out, types.intp, types.intp), codegen

    @njit
    def apply(numbers: Any, out: Any, first: int, last: int) -> None:
        wide()
        vector(numbers, out, first, last)

    def call(numbers, first=0, last=0):
        out = np.empty(LANES)
        apply(np.ascontiguousarray(numbers, dtype=np.float64), out, first, last)
        return out

    return call


def eight(builder, base):
    """The first eight numbers."""
    return builder.load(builder.bitcast(base, VECTOR.as_pointer()), align=8)


@pytest.mark.parametrize("raised", [True, False])
def test_powers_of_two(raised):
    take = compiled(lambda b, base, *_: power_of_two(b, eight(b, base), COEFFICIENTS, raised))
    for seed in range(20):
        t = np.random.default_rng(seed).uniform(LEAST, 1000.0, LANES)
        np.testing.assert_allclose(take(t), np.exp2(t), rtol=4e-16)
    whole = np.arange(-4.0, 4.0)
    assert (take(whole) == np.exp2(whole)).all()


def test_smaller_exponents_are_raised():
    take = compiled(lambda b, base, *_: power_of_two(b, eight(b, base), COEFFICIENTS))
    t = np.array([LEAST, LEAST - 0.5, -1e5, -1e300, 0.0, -1.0, LEAST + 1, 5.0])
    assert (take(t) == np.exp2(np.maximum(t, LEAST))).all()


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize(("first", "last"), [(0, 0), (2, 1), (5, 6), (1, 12), (0, 30)])
def test_loops_of_no_step_of_one_and_of_many(first, last, step):
    def sums(builder, base, start, stop):
        """1 + the numbers that are met, in all places; two are held, so that none takes the other's place."""

        def body(j, held):
            return [builder.fadd(held[0], everywhere(builder, base, j)), builder.fadd(held[1], constant(1.0))]

        total, count = loop(builder, start, stop, [constant(1.0), constant(0.0)], body, step)
        return multiply_add(builder, count, constant(1000.0), total)

    numbers = np.arange(30.0) ** 2
    met = numbers[first:last:step]
    assert (compiled(sums)(numbers, first, last) == 1 + met.sum() + 1000.0 * len(met)).all()


def test_a_loop_inside_a_loop():
    def sums(builder, base, start, stop):
        def outer(j, held):
            return loop(builder, start, j, held, lambda i, so_far: [
                multiply_add(builder, everywhere(builder, base, i), everywhere(builder, base, j), so_far[0])
            ])  # fmt: skip

        return loop(builder, start, stop, [constant(0.0)], outer)[0]

    numbers = np.arange(1.0, 10.0)
    expected = sum(numbers[i] * numbers[j] for j in range(9) for i in range(j))
    assert (compiled(sums)(numbers, 0, 9) == expected).all()


def test_one_value_in_all_places():
    def places(builder, base, first, _last):
        number = builder.sitofp(spread(builder, first, INTEGERS), VECTOR)
        third = everywhere(builder, base, ir.Constant(INTEGER, 2))
        return builder.fadd(number, builder.fadd(third, eight(builder, base)))

    numbers = np.arange(LANES) / 4
    assert (compiled(places)(numbers, 7) == 7 + numbers[2] + numbers).all()
