"""Kernels for direct attention with d, d_v <= 8 on ordinary registers: every lane owns query rows.

    x_ij = beta log2(e) <q_i, k_j> - shift_i,      S_i = sum_j m_j 2^{x_ij},      A_i = sum_j m_j 2^{x_ij} v_j

A lane keeps q_i, S_i and A_i of a few rows in registers and reads the keys, which are the same for all lanes, so
nothing crosses lanes inside the loop: a pair costs d multiply-adds for the score, one exponential, and d_v + 1
multiply-adds for the sums. For d = 2 on an H200 the exponentials are the limit (8 of 8.8 clocks per pair), and
replacing one in 8 or 16 of them by a polynomial was slower: the multiply-adds have no room for it.
"""

# mypy: disable-error-code="assignment, attr-defined"
# ruff: noqa: SIM108
# Kernels grow tuples of registers at compile time, and their branches are compiled, not chosen: neither tool knows.
from __future__ import annotations

from metastable.attention.gpu.jit import jit, tl


@jit
def exp2_special(x: tl.tensor) -> tl.tensor:
    """2^x in float32 on the special-function unit, results below 2^-126 flushed to zero."""
    return tl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )


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
def load_row(pointer: tl.tensor, WIDTH: tl.constexpr, DOUBLE: tl.constexpr) -> tl.tuple:
    """One packed key as a tuple of scalars, in loads of 16 bytes that all lanes share."""
    row = ()
    if DOUBLE:
        for _ in tl.static_range(WIDTH // 2):
            a, b = tl.inline_asm_elementwise(
                "ld.global.nc.v2.f64 {$0, $1}, [$2];",
                "=d,=d,l",
                [pointer],
                dtype=(tl.float64, tl.float64),
                is_pure=True,
                pack=1,
            )
            row = row + (a, b)
            pointer += 2
    elif WIDTH == 2:
        a, b = tl.inline_asm_elementwise(
            "ld.global.nc.v2.f32 {$0, $1}, [$2];",
            "=f,=f,l",
            [pointer],
            dtype=(tl.float32, tl.float32),
            is_pure=True,
            pack=1,
        )
        row = (a, b)
    else:
        for _ in tl.static_range(WIDTH // 4):
            a, b, c, d = tl.inline_asm_elementwise(
                "ld.global.nc.v4.f32 {$0, $1, $2, $3}, [$4];",
                "=f,=f,=f,=f,l",
                [pointer],
                dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
                is_pure=True,
                pack=1,
            )
            row = row + (a, b, c, d)
            pointer += 4
    return row


@jit
def load_queries(
    q_ptr: tl.tensor, rows: tl.tensor, inside: tl.tensor, scale: tl.tensor, D: tl.constexpr, DOUBLE: tl.constexpr
) -> tl.tuple:
    """The coordinates of beta log2(e) q as a tuple of vectors over the rows of this program."""
    q = ()
    for c in tl.static_range(D):
        component = tl.load(q_ptr + rows * D + c, mask=inside, other=0.0).to(tl.float64) * scale
        if DOUBLE:
            q = q + (component,)
        else:
            q = q + (component.to(tl.float32),)
    return q


@jit
def add_pair(
    q: tl.tuple,
    minus_shift: tl.tensor,
    row: tl.tuple,
    sums: tl.tuple,
    D: tl.constexpr,
    DV: tl.constexpr,
    SEPARATE: tl.constexpr,
    WEIGHTS: tl.constexpr,
    SHIFT: tl.constexpr,
    DOUBLE: tl.constexpr,
) -> tl.tuple:
    """The sums (A, S) with one more key."""
    VALUE: tl.constexpr = D if SEPARATE else 0
    MASS: tl.constexpr = D + (DV if SEPARATE else 0)
    # Without a shift the first product has no addend: one operand less to read, and registers are the limit here.
    if SHIFT == 0:
        x = q[0] * row[0]
    else:
        x = q[0] * row[0] + minus_shift
    for c in tl.static_range(1, D):
        x = q[c] * row[c] + x
    if WEIGHTS == 2:
        x += row[MASS]
    if DOUBLE:
        weight = exp2_fused64(x)
    else:
        weight = exp2_special(x)
    new = ()
    for c in tl.static_range(DV):
        new = new + (weight * row[VALUE + c] + sums[c],)
    if WEIGHTS == 1:
        new = new + (weight * row[MASS] + sums[DV],)
    else:
        new = new + (sums[DV] + weight,)
    return new


@jit
def sums_kernel(
    q_ptr: tl.tensor,
    key_ptr: tl.tensor,
    frame_ptr: tl.tensor,
    shift_ptr: tl.tensor,
    out_ptr: tl.tensor,
    n_q: tl.tensor,
    n_k: tl.tensor,
    chunk: tl.tensor,
    D: tl.constexpr,
    DV: tl.constexpr,
    WIDTH: tl.constexpr,
    SEPARATE: tl.constexpr,
    WEIGHTS: tl.constexpr,
    SHIFT: tl.constexpr,
    DOUBLE: tl.constexpr,
    ROWS: tl.constexpr,
    UNROLL: tl.constexpr,
    FLUSH: tl.constexpr,
) -> None:
    """Partial sums over one chunk of keys: out[chunk, 0:DV] = A, out[chunk, DV] = S.

    SHIFT 0: none; 1: the bound, written by the programs of the first chunk; 2: given.
    """
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_q
    q = load_queries(q_ptr, rows, inside, tl.load(frame_ptr), D, DOUBLE)
    if SHIFT == 2:
        shift = tl.load(shift_ptr + rows, mask=inside, other=0.0)
    elif SHIFT == 1:
        square = q[0] * q[0]
        for c in tl.static_range(1, D):
            square = square + q[c] * q[c]
        # A whole number of bits: scores that are exact in float32 stay exact after the shift.
        shift = tl.ceil(tl.sqrt(square.to(tl.float64)) * tl.load(frame_ptr + 1))
        if not DOUBLE:
            shift = shift.to(tl.float32)
        if tl.program_id(1) == 0:
            tl.store(shift_ptr + rows, shift, mask=inside)
    if DOUBLE:
        zero = tl.zeros((ROWS,), tl.float64)
    else:
        zero = tl.zeros((ROWS,), tl.float32)
    if SHIFT == 0:
        shift = zero
    sums = ()
    for _ in tl.static_range(DV + 1):
        sums = sums + (zero,)
    length = tl.minimum(n_k - tl.program_id(1) * chunk, chunk)
    key_ptr += tl.program_id(1).to(tl.int64) * chunk * WIDTH
    unrolled = length // UNROLL * UNROLL
    for start in range(0, unrolled, FLUSH):
        part = ()
        for _ in tl.static_range(DV + 1):
            part = part + (zero,)
        for j in range(start, tl.minimum(start + FLUSH, unrolled), UNROLL):
            for u in tl.static_range(UNROLL):
                row = load_row(key_ptr + (j + u) * WIDTH, WIDTH, DOUBLE)
                part = add_pair(q, -shift, row, part, D, DV, SEPARATE, WEIGHTS, SHIFT, DOUBLE)
        new = ()
        for c in tl.static_range(DV + 1):
            new = new + (sums[c] + part[c],)
        sums = new
    for j in range(unrolled, length):
        row = load_row(key_ptr + j * WIDTH, WIDTH, DOUBLE)
        sums = add_pair(q, -shift, row, sums, D, DV, SEPARATE, WEIGHTS, SHIFT, DOUBLE)
    for c in tl.static_range(DV + 1):
        offset = (tl.program_id(1).to(tl.int64) * (DV + 1) + c) * n_q
        tl.store(out_ptr + offset + rows, sums[c], mask=inside)


@jit
def maximum_kernel(
    q_ptr: tl.tensor,
    key_ptr: tl.tensor,
    frame_ptr: tl.tensor,
    out_ptr: tl.tensor,
    n_q: tl.tensor,
    n_k: tl.tensor,
    chunk: tl.tensor,
    D: tl.constexpr,
    MASS: tl.constexpr,
    WIDTH: tl.constexpr,
    LOG_MASS: tl.constexpr,
    DOUBLE: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """out[chunk, i] = max_j beta log2(e) <q_i, k_j> + log2 m_j over one chunk of keys."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_q
    q = load_queries(q_ptr, rows, inside, tl.load(frame_ptr), D, DOUBLE)
    best = q[0] * 0.0 - float("inf")
    length = tl.minimum(n_k - tl.program_id(1) * chunk, chunk)
    key_ptr += tl.program_id(1).to(tl.int64) * chunk * WIDTH
    for j in range(0, length):
        row = load_row(key_ptr + j * WIDTH, WIDTH, DOUBLE)
        x = q[0] * row[0]
        for c in tl.static_range(1, D):
            x = q[c] * row[c] + x
        if LOG_MASS:
            x = x + row[MASS]
        best = tl.maximum(best, x)
    tl.store(out_ptr + tl.program_id(1).to(tl.int64) * n_q + rows, best, mask=inside)


@jit
def pack_kernel(
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    frame_ptr: tl.tensor,
    out_ptr: tl.tensor,
    n_k: tl.tensor,
    D: tl.constexpr,
    DV: tl.constexpr,
    WIDTH: tl.constexpr,
    SEPARATE: tl.constexpr,
    WEIGHTS: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Rows [ k - c | v - c_v | mass ], each part only where `sums_kernel` reads it.

    WEIGHTS 0: equal masses; 1: values multiplied by the mass, and the mass; 2: the log2 of the mass.
    """
    MASS: tl.constexpr = D + (DV if SEPARATE else 0)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_k
    share = tl.full((ROWS,), 1.0, tl.float64)
    if WEIGHTS > 0:
        share = tl.load(mass_ptr + rows, mask=inside, other=1.0).to(tl.float64) * tl.load(frame_ptr + 3)
        if WEIGHTS == 1:
            tl.store(out_ptr + rows * WIDTH + MASS, share, mask=inside)
        else:
            tl.store(out_ptr + rows * WIDTH + MASS, tl.log(share) * 1.4426950408889634, mask=inside)
    for c in tl.static_range(D):
        k = tl.load(key_ptr + rows * D + c, mask=inside, other=0.0).to(tl.float64) - tl.load(frame_ptr + 4 + c)
        tl.store(out_ptr + rows * WIDTH + c, k, mask=inside)
    if SEPARATE:
        for c in tl.static_range(DV):
            v = tl.load(value_ptr + rows * DV + c, mask=inside, other=0.0).to(tl.float64)
            v -= tl.load(frame_ptr + 4 + D + c)
            if WEIGHTS == 1:
                v *= share
            tl.store(out_ptr + rows * WIDTH + D + c, v, mask=inside)
