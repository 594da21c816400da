"""Instructions of the card that Triton has no word for: special functions, wide loads, and 2^x in float64.

Loads of 16 bytes that all lanes of a warp share, and exponentials without a branch: the inner loops of the
kernels for d <= 8 consist of little else.
"""

# mypy: disable-error-code="assignment, attr-defined"
# ruff: noqa: SIM108
from __future__ import annotations

from metastable.attention.gpu.jit import jit, tl


@jit
def special(ASSEMBLY: tl.constexpr, x: tl.tensor) -> tl.tensor:
    """A function of the special-function unit in float32, good to 2^-22."""
    return tl.inline_asm_elementwise(ASSEMBLY, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@jit
def exp2_special(x: tl.tensor) -> tl.tensor:
    """2^x in float32 on the special-function unit, results below 2^-126 flushed to zero."""
    return special("ex2.approx.ftz.f32 $0, $1;", x)


@jit
def exp2_fused64(x: tl.tensor) -> tl.tensor:
    """2^x in float64 by multiply-adds (relative error 3e-16): x = whole + f, |f| <= 1/2, degree 11 in f."""
    x = tl.maximum(x, -1022.0)
    shifted = x + 6755399441055744.0  # 1.5 * 2^52: the low bits of the sum hold the nearest integer
    f = x - (shifted - 6755399441055744.0)
    p = f * 4.4558179083360645e-10 + 7.074194297288521e-09
    p = p * f + 1.0178057087733941e-07
    p = p * f + 1.3215432535912375e-06
    p = p * f + 1.5252733841556773e-05
    p = p * f + 0.00015403530463724353
    p = p * f + 0.001333355814640647
    p = p * f + 0.009618129107587256
    p = p * f + 0.055504108664821625
    p = p * f + 0.24022650695910158
    p = p * f + 0.6931471805599453
    p = p * f + 1.0
    bits = p.to(tl.int64, bitcast=True) + (shifted.to(tl.int64, bitcast=True) << 52)
    return bits.to(tl.float64, bitcast=True)


@jit
def exp2_weight(x: tl.tensor, DOUBLE: tl.constexpr) -> tl.tensor:
    """2^x in float64 or float32, by what is fastest there."""
    if DOUBLE:
        weight = exp2_fused64(x)
    else:
        weight = exp2_special(x)
    return weight


@jit
def load_two(pointer: tl.tensor, ASSEMBLY: tl.constexpr, REGISTERS: tl.constexpr, TYPE: tl.constexpr) -> tl.tuple:
    """Two consecutive numbers by one instruction."""
    return tl.inline_asm_elementwise(
        ASSEMBLY, REGISTERS, [pointer], dtype=(TYPE.value, TYPE.value), is_pure=True, pack=1
    )


@jit
def load_four(pointer: tl.tensor, ASSEMBLY: tl.constexpr, REGISTERS: tl.constexpr, TYPE: tl.constexpr) -> tl.tuple:
    """Four consecutive numbers by one instruction."""
    return tl.inline_asm_elementwise(
        ASSEMBLY, REGISTERS, [pointer], dtype=(TYPE.value, TYPE.value, TYPE.value, TYPE.value), is_pure=True, pack=1
    )


@jit
def load_numbers(pointer: tl.tensor, COUNT: tl.constexpr) -> tl.tuple:
    """COUNT consecutive numbers as a tuple, in loads of 16 bytes, or of 8 for two float32 numbers.

    COUNT is even in float64; in float32 and int32 it is 2 or a multiple of 4.
    """
    TYPE: tl.constexpr = pointer.dtype.element_ty
    numbers = ()
    if tl.float64 == TYPE:
        for _ in tl.static_range(COUNT // 2):
            numbers = numbers + load_two(pointer, "ld.global.nc.v2.f64 {$0, $1}, [$2];", "=d,=d,l", TYPE)
            pointer += 2
    elif COUNT == 2:
        numbers = load_two(pointer, "ld.global.nc.v2.f32 {$0, $1}, [$2];", "=f,=f,l", TYPE)
    else:
        for _ in tl.static_range(COUNT // 4):
            if tl.float32 == TYPE:
                four = load_four(pointer, "ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];", "=f,=f,=f,=f,l", TYPE)
            else:
                four = load_four(pointer, "ld.global.nc.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l", TYPE)
            numbers = numbers + four
            pointer += 4
    return numbers
