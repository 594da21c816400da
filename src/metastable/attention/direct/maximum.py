"""The largest number of a row for compiled loops, in vector instructions."""

from __future__ import annotations

from typing import Any

from numba import njit, types
from numba.extending import intrinsic

from metastable.attention.exp2 import REDUCTION, wide
from metastable.attention.lasting import lasting


def _numbers(_context: Any) -> Any:
    """Called anywhere in a compiled function: nothing in it is a NaN, and zeros have no sign.

    The flags of instructions say so, too, but not those of a choice between two numbers: without this, LLVM looks
    for a maximum one number after the other, which takes longer than their exponentials. It holds for a function
    as a whole, and where that has other loops, too, LLVM may still not do it.
    """

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        for name in ("no-nans-fp-math", "no-signed-zeros-fp-math"):
            set.add(builder.function.attributes, f'"{name}"="true"')
        return context.get_dummy_value()

    return types.void(), codegen


numbers: Any = lasting(intrinsic(_numbers), "numbers")


def _largest_of(row: Any, count: int) -> Any:
    """max of the first `count` numbers of a row, of which there is at least one and none is a NaN."""
    wide()
    numbers()
    top = row[0]
    for j in range(count):
        top = row[j] if row[j] > top else top
    return top


largest_of: Any = lasting(njit(fastmath=REDUCTION, nogil=True, error_model="numpy")(_largest_of), "largest_of")
