"""Kernels for direct attention with d, d_v <= 8 on ordinary registers: every thread owns query rows.

    x_ij = beta log2(e) <q_i, k_j> - shift_i,      S_i = sum_j m_j 2^{x_ij},      A_i = sum_j m_j 2^{x_ij} v_j

A thread keeps q_i, S_i and A_i of a few rows in registers and reads the keys, the same for all threads, so that
nothing crosses threads inside the loop: a pair costs d multiply-adds for the score, one exponential, and d_v + 1
multiply-adds for the sums. For d = 2 on an H200 the exponentials are the limit (8 of 8.8 clocks per pair), and
replacing one in 8 or 16 of them by a polynomial was slower: the multiply-adds have no room for it.
"""

# mypy: disable-error-code="assignment, attr-defined"
# ruff: noqa: SIM108
# Kernels grow tuples of registers at compile time, and their branches are compiled, not chosen: neither tool knows.
from __future__ import annotations

from metastable.attention.gpu.coordinates import add_multiple, add_products, repeated
from metastable.attention.gpu.frame import centre_at, inverse_mass, key_radius, scale_of
from metastable.attention.gpu.instructions import exp2_weight, load_numbers
from metastable.attention.gpu.jit import jit, tl


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
    IN_VALUES: tl.constexpr,
    AS_LOG: tl.constexpr,
    SHIFTED: tl.constexpr,
    DOUBLE: tl.constexpr,
) -> tl.tuple:
    """The sums (A, S) with one more key."""
    VALUE: tl.constexpr = D if SEPARATE else 0
    MASS: tl.constexpr = D + (DV if SEPARATE else 0)
    # Without a shift the first product has no addend: one operand less to read, and registers are the limit here.
    if SHIFTED:
        x = q[0] * row[0] + minus_shift
    else:
        x = q[0] * row[0]
    x = add_products(x, q, row, 0, D)
    if AS_LOG:
        x += row[MASS]
    weight = exp2_weight(x, DOUBLE)
    new = add_multiple(weight, row, VALUE, sums, DV)
    if IN_VALUES:
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
    IN_VALUES: tl.constexpr,
    AS_LOG: tl.constexpr,
    SHIFTED: tl.constexpr,
    GIVEN: tl.constexpr,
    DOUBLE: tl.constexpr,
    ROWS: tl.constexpr,
    UNROLL: tl.constexpr,
    FLUSH: tl.constexpr,
) -> None:
    """Partial sums over one chunk of keys: out[chunk, 0:DV] = A, out[chunk, DV] = S.

    A shift is GIVEN, or it is the bound, which the programs of the first chunk write.
    """
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_q
    q = load_queries(q_ptr, rows, inside, scale_of(frame_ptr), D, DOUBLE)
    if DOUBLE:
        zero = tl.zeros((ROWS,), tl.float64)
    else:
        zero = tl.zeros((ROWS,), tl.float32)
    shift = zero
    if GIVEN:
        shift = tl.load(shift_ptr + rows, mask=inside, other=0.0)
    elif SHIFTED:
        square = add_products(q[0] * q[0], q, q, 0, D)
        # A whole number of bits: scores that are exact in float32 stay exact after the shift.
        shift = tl.ceil(tl.sqrt(square.to(tl.float64)) * key_radius(frame_ptr))
        if not DOUBLE:
            shift = shift.to(tl.float32)
        if tl.program_id(1) == 0:
            tl.store(shift_ptr + rows, shift, mask=inside)
    zeros = repeated(zero, DV + 1)
    sums = zeros
    length = tl.minimum(n_k - tl.program_id(1) * chunk, chunk)
    key_ptr += tl.program_id(1).to(tl.int64) * chunk * WIDTH
    unrolled = length // UNROLL * UNROLL
    for start in range(0, unrolled, FLUSH):
        part = zeros
        for j in range(start, tl.minimum(start + FLUSH, unrolled), UNROLL):
            for u in tl.static_range(UNROLL):
                row = load_numbers(key_ptr + (j + u) * WIDTH, WIDTH)
                part = add_pair(q, -shift, row, part, D, DV, SEPARATE, IN_VALUES, AS_LOG, SHIFTED, DOUBLE)
        new = ()
        for c in tl.static_range(DV + 1):
            new = new + (sums[c] + part[c],)
        sums = new
    for j in range(unrolled, length):
        row = load_numbers(key_ptr + j * WIDTH, WIDTH)
        sums = add_pair(q, -shift, row, sums, D, DV, SEPARATE, IN_VALUES, AS_LOG, SHIFTED, DOUBLE)
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
    AS_LOG: tl.constexpr,
    DOUBLE: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """out[chunk, i] = max_j beta log2(e) <q_i, k_j> + log2 m_j over one chunk of keys."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_q
    q = load_queries(q_ptr, rows, inside, scale_of(frame_ptr), D, DOUBLE)
    best = q[0] * 0.0 - float("inf")
    length = tl.minimum(n_k - tl.program_id(1) * chunk, chunk)
    key_ptr += tl.program_id(1).to(tl.int64) * chunk * WIDTH
    for j in range(0, length):
        row = load_numbers(key_ptr + j * WIDTH, WIDTH)
        x = add_products(q[0] * row[0], q, row, 0, D)
        if AS_LOG:
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
    IN_VALUES: tl.constexpr,
    AS_LOG: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """Rows [ k - c | v - c_v | mass ], each part only where `sums_kernel` reads it.

    Masses are equal, or IN_VALUES (values multiplied by the mass, and the mass), or there AS_LOG (their log2).
    """
    MASS: tl.constexpr = D + (DV if SEPARATE else 0)
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_k
    share = tl.full((ROWS,), 1.0, tl.float64)
    if IN_VALUES or AS_LOG:
        share = tl.load(mass_ptr + rows, mask=inside, other=1.0).to(tl.float64) * inverse_mass(frame_ptr)
        if IN_VALUES:
            tl.store(out_ptr + rows * WIDTH + MASS, share, mask=inside)
        else:
            tl.store(out_ptr + rows * WIDTH + MASS, tl.log(share) * 1.4426950408889634, mask=inside)
    for c in tl.static_range(D):
        k = tl.load(key_ptr + rows * D + c, mask=inside, other=0.0).to(tl.float64)
        k -= tl.load(centre_at(frame_ptr, c))
        tl.store(out_ptr + rows * WIDTH + c, k, mask=inside)
    if SEPARATE:
        for c in tl.static_range(DV):
            v = tl.load(value_ptr + rows * DV + c, mask=inside, other=0.0).to(tl.float64)
            v -= tl.load(centre_at(frame_ptr, D + c))
            if IN_VALUES:
                v *= share
            tl.store(out_ptr + rows * WIDTH + D + c, v, mask=inside)
