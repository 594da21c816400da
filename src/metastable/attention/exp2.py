"""2^t for compiled loops: branch-free, so that LLVM turns a loop over it into vector instructions.

2^t = 2^k p(t - k) with k the integer nearest to t and p the polynomial that interpolates 2^r at the Chebyshev nodes
of [-1/2, 1/2]: degree 11 in float64 (truncation 4e-18), degree 6 in float32 (3e-9). k comes from adding and
subtracting 1.5 * 2^52 (1.5 * 2^23), which rounds to an integer and leaves k in the low bits of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic, overload

from metastable.attention.lasting import lasting

NO_REASSOCIATION: Any = dict.fromkeys(("contract", "nnan", "ninf", "nsz", "arcp"), True)
"""Fast-math flags for code around `exp2`. Reassociation would cancel the two roundings and must stay out of it.
In an order that is the same in every process: numba finds on disk what it has compiled by them."""

REDUCTION: Any = NO_REASSOCIATION | {"reassoc": True}
"""Flags for loops that sum what `exp2` returns; the instructions of an inlined `exp2` keep their own flags."""

LOG2_E, LN_2 = math.log2(math.e), math.log(2.0)
"""e^x = 2^(x LOG2_E), and back."""

ROUND_64 = 6755399441055744.0
"""1.5 * 2^52."""
COEFFICIENTS = (
    1.0,
    0.6931471805599453,
    0.24022650695910158,
    0.055504108664821625,
    0.009618129107587256,
    0.001333355814640647,
    0.00015403530463724353,
    1.5252733841556773e-05,
    1.3215432535912375e-06,
    1.0178057087733941e-07,
    7.074194297288521e-09,
    4.4558179083360645e-10,
)
"""Of p in float64, the constant first."""
_ROUND_32 = np.float32(12582912.0)
_F32_C = tuple(
    np.float32(c)
    for c in (
        1.0,
        0.6931472067028326,
        0.24022650922288757,
        0.05550327226670302,
        0.009618056678524637,
        0.0013400428177615838,
        0.0001546144469856913,
    )
)
"""Coefficients of p in float32."""
_C0, _C1, _C2, _C3, _C4, _C5, _C6 = _F32_C
_D0, _D1, _D2, _D3, _D4, _D5, _D6, _D7, _D8, _D9, _D10, _D11 = COEFFICIENTS


def _bitcast(source: Any, target: Any) -> Any:
    @intrinsic
    def cast(_context: Any, _value: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), codegen

    return cast


_bits_64, float_of_bits = _bitcast(types.float64, types.int64), _bitcast(types.int64, types.float64)
_bits_32, _float_32 = _bitcast(types.float32, types.int32), _bitcast(types.int32, types.float32)
_SHIFT_32 = np.int32(23)


def _wide(_context: Any) -> Any:
    """Called anywhere in a compiled function: its loops may use vectors of 512 bits, where the processor has them.

    LLVM prefers 256 bits, for processors that slow down with wider ones; loops that are one exponential after the
    other gain a third. llvmlite keeps the set of a function's attributes, and checks names only in its own `add`.
    """

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        set.add(builder.function.attributes, '"prefer-vector-width"="512"')
        return context.get_dummy_value()

    return types.void(), codegen


wide: Any = lasting(intrinsic(_wide), "wide")


def exp2(t: Any) -> Any:
    """2^t, to be called from compiled code: |t| <= 1000 in float64, |t| <= 120 in float32; clamp before calling."""
    return np.exp2(t)


@overload(exp2, jit_options={"fastmath": NO_REASSOCIATION})
def _exp2(t: Any) -> Callable[[Any], Any] | None:
    if t == types.float64:

        def double(t: Any) -> Any:
            s = t + ROUND_64
            r = t - (s - ROUND_64)
            p = _D11 * r + _D10
            p = p * r + _D9
            p = p * r + _D8
            p = p * r + _D7
            p = p * r + _D6
            p = p * r + _D5
            p = p * r + _D4
            p = p * r + _D3
            p = p * r + _D2
            p = p * r + _D1
            p = p * r + _D0
            return float_of_bits(_bits_64(p) + (_bits_64(s) << 52))

        return double
    if t == types.float32:

        def single(t: Any) -> Any:
            s = t + _ROUND_32
            r = t - (s - _ROUND_32)
            p = _C6 * r + _C5
            p = p * r + _C4
            p = p * r + _C3
            p = p * r + _C2
            p = p * r + _C1
            p = p * r + _C0
            return _float_32(_bits_32(p) + types.int32(_bits_32(s) << _SHIFT_32))

        return single
    return None


def log(t: Any) -> Any:
    """Natural logarithm of a normal positive float64, for compiled code; error 3e-16 (1 + |log t|)."""
    return np.log(t)


@overload(log, jit_options={"fastmath": NO_REASSOCIATION})
def _log(t: Any) -> Callable[[Any], Any] | None:
    if t == types.float64:

        def double(t: Any) -> Any:
            # t = 2^k m with sqrt(1/2) <= m < sqrt(2): adding the bits of 1 / sqrt(1/2) moves the cut there.
            bits = _bits_64(t) + (0x3FF0000000000000 - 0x3FE6A09E667F3BCD)
            k = float((bits >> 52) - 1023)
            m = float_of_bits((bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD)
            r = (m - 1.0) / (m + 1.0)
            s = r * r
            p = s * 0.09523809523809523 + 0.10526315789473684
            p = p * s + 0.11764705882352941
            p = p * s + 0.13333333333333333
            p = p * s + 0.15384615384615385
            p = p * s + 0.18181818181818182
            p = p * s + 0.2222222222222222
            p = p * s + 0.2857142857142857
            p = p * s + 0.4
            p = p * s + 0.6666666666666666
            return k * 0.6931471805599453 + (2.0 * r + r * s * p)

        return double
    return None
