"""Kernels for direct attention with d, d_v <= 8 at float32 accuracy on tensor cores, beside the exponentials.

    x_ij = beta log2(e) <q_i, k_j> - shift_i,      S_i = sum_j m_j 2^{x_ij},      A_i = sum_j m_j 2^{x_ij} v_j

What a warp holds of queries, keys and values is described in `tensor_core_tiles`. Tensor cores truncate when they
accumulate: their sums are flushed into ordinary ones every STEPS times 8 keys, by Kahan's summation if COMPENSATED,
so that the rounding of a chunk does not grow with its keys.
"""

# mypy: disable-error-code="assignment, attr-defined, misc, var-annotated"
from __future__ import annotations

from metastable.attention.gpu.coordinates import repeated
from metastable.attention.gpu.frame import centre_at, inverse_mass, scale_of
from metastable.attention.gpu.instructions import load_numbers
from metastable.attention.gpu.jit import jit, tl
from metastable.attention.gpu.tensor_core_tiles import (
    add_tile,
    finite_half_pair,
    first_row,
    fold_columns,
    half_bits,
    load_tile,
    multiply_scores,
    round_tf32,
    row_shift,
)


@jit
def tile_sums_kernel(
    q_ptr: tl.tensor,
    key_ptr: tl.tensor,
    frame_ptr: tl.tensor,
    shift_ptr: tl.tensor,
    out_ptr: tl.tensor,
    n_q: tl.tensor,
    groups: tl.tensor,
    chunk: tl.tensor,
    key_unit: tl.tensor,
    shift_unit: tl.tensor,
    D: tl.constexpr,
    DV: tl.constexpr,
    KS: tl.constexpr,
    NV: tl.constexpr,
    WORDS: tl.constexpr,
    SHIFTED: tl.constexpr,
    GIVEN: tl.constexpr,
    AS_LOG: tl.constexpr,
    TILES: tl.constexpr,
    STEPS: tl.constexpr,
    COMPENSATED: tl.constexpr,
    THREADS: tl.constexpr,
) -> None:
    """Partial sums over one chunk of groups: out[chunk, 0:DV] = A, out[chunk, DV] = S.

    A shift is GIVEN, or it is the bound; what was used of it is written by the programs of the first chunk.
    """
    OUT: tl.constexpr = 2 * NV if NV != 2 else 4
    thread = tl.arange(0, THREADS)
    t = thread % 4
    first = first_row(TILES, THREADS)
    scale = scale_of(frame_ptr) * key_unit
    tiles = ()
    for i in tl.static_range(TILES):
        shifts = ()
        if SHIFTED:
            for side in tl.static_range(2):
                row = first + (16 * i + 8 * side)
                shift = row_shift(q_ptr, frame_ptr, shift_ptr, row, row < n_q, shift_unit, D, GIVEN)
                if tl.program_id(1) == 0:
                    tl.store(shift_ptr + row, shift * shift_unit, mask=(row < n_q) & (t == 0))
                shifts = shifts + (shift,)
        tiles = tiles + (load_tile(q_ptr, first + 16 * i, t, shifts, scale, n_q, D, KS, SHIFTED, AS_LOG),)
    zero = tl.zeros((THREADS,), tl.float32)
    zeros = repeated(repeated(repeated(zero, 4), NV), TILES)
    totals = repeated(zero, TILES * OUT)
    lost = totals
    begin = tl.program_id(1) * chunk
    at = key_ptr + (begin.to(tl.int64) * 32 + thread % 32) * WORDS
    for _ in range(begin, tl.minimum(begin + chunk, groups), STEPS):
        parts = zeros
        for u in tl.static_range(STEPS):
            b = load_numbers(at + u * (32 * WORDS), WORDS)
            new = ()
            for j in tl.static_range(TILES):
                new = new + (add_tile(tiles[j], b, parts[j], KS, NV),)
            parts = new
        at += STEPS * 32 * WORDS
        flushed = ()
        rounded = ()
        for j in tl.static_range(TILES):
            folded = fold_columns(parts[j], NV)
            for o in tl.static_range(OUT):
                if COMPENSATED:
                    added = folded[o] - lost[j * OUT + o]
                    total = totals[j * OUT + o] + added
                    rounded = rounded + ((total - totals[j * OUT + o]) - added,)
                else:
                    total = totals[j * OUT + o] + folded[o]
                flushed = flushed + (total,)
        totals = flushed
        if COMPENSATED:
            lost = rounded
    for j in tl.static_range(TILES):
        for o in tl.static_range(OUT):
            if NV == 1:
                line = first + (16 * j + 8 * o)
                component = t
            elif o < 4:
                line = first + (16 * j + 8 * (o // 2))
                component = 2 * t + o % 2
            else:
                line = first + (16 * j + 8 * (o - 4))
                component = 8 + t
            place = (tl.program_id(1).to(tl.int64) * (DV + 1) + component) * n_q + line
            tl.store(out_ptr + place, totals[j * OUT + o], mask=(line < n_q) & (component <= DV))


@jit
def tile_maximum_kernel(
    q_ptr: tl.tensor,
    key_ptr: tl.tensor,
    frame_ptr: tl.tensor,
    out_ptr: tl.tensor,
    n_q: tl.tensor,
    groups: tl.tensor,
    chunk: tl.tensor,
    key_unit: tl.tensor,
    D: tl.constexpr,
    KS: tl.constexpr,
    WORDS: tl.constexpr,
    AS_LOG: tl.constexpr,
    TILES: tl.constexpr,
    THREADS: tl.constexpr,
) -> None:
    """out[4 chunk + t, i] = max beta log2(e) <q_i, k_j> + log2 m_j over a quarter of the keys of one chunk."""
    thread = tl.arange(0, THREADS)
    t = thread % 4
    first = first_row(TILES, THREADS)
    scale = scale_of(frame_ptr) * key_unit
    none = tl.zeros((THREADS,), tl.float32)
    tiles = ()
    best = ()
    for i in tl.static_range(TILES):
        tiles = tiles + (load_tile(q_ptr, first + 16 * i, t, (none, none), scale, n_q, D, KS, True, AS_LOG),)
        best = best + (none - float("inf"), none - float("inf"))
    begin = tl.program_id(1) * chunk
    at = key_ptr + (begin.to(tl.int64) * 32 + thread % 32) * WORDS
    for _ in range(begin, tl.minimum(begin + chunk, groups)):
        b = load_numbers(at, WORDS)
        new = ()
        for j in tl.static_range(TILES):
            x = multiply_scores(tiles[j], b, KS)
            new = new + (
                tl.maximum(best[2 * j], tl.maximum(x[0], x[1])),
                tl.maximum(best[2 * j + 1], tl.maximum(x[2], x[3])),
            )
        best = new
        at += 32 * WORDS
    for j in tl.static_range(2 * TILES):
        line = first + 8 * j
        tl.store(out_ptr + (4 * tl.program_id(1) + t).to(tl.int64) * n_q + line, best[j], mask=line < n_q)


@jit
def tile_pack_kernel(
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    mass_ptr: tl.tensor,
    frame_ptr: tl.tensor,
    out_ptr: tl.tensor,
    n_k: tl.tensor,
    groups: tl.tensor,
    key_unit: tl.tensor,
    shift_unit: tl.tensor,
    D: tl.constexpr,
    DV: tl.constexpr,
    KS: tl.constexpr,
    NV: tl.constexpr,
    WORDS: tl.constexpr,
    SAME: tl.constexpr,
    SHIFTED: tl.constexpr,
    IN_VALUES: tl.constexpr,
    AS_LOG: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """The words that every lane reads of every group of 8 keys, for `tile_sums_kernel`.

    Masses are equal, or IN_VALUES (multiplied by them), or a coordinate of the keys, AS_LOG. Groups are filled up
    with copies of the last key whose values and mass are zero.
    """
    at = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = at < groups.to(tl.int64) * 32
    g = at % 32 // 4
    t = at % 4
    key = tl.minimum(at // 32 * 8 + g, n_k - 1)
    for step in tl.static_range(2 * KS):
        c = t // 2 + 2 * step
        k = tl.load(key_ptr + key * D + c, mask=c < D, other=0.0).to(tl.float64)
        k = (k - tl.load(centre_at(frame_ptr, c), mask=c < D, other=0.0)) / key_unit
        if SHIFTED:
            k = tl.where(c == D, shift_unit, k)
        if AS_LOG:
            share = tl.load(mass_ptr + key).to(tl.float64) * inverse_mass(frame_ptr)
            # Against the lower part of 1, which is 0, stands 0: the logarithm may be infinite.
            k = tl.where(c == D + SHIFTED, tl.where(t % 2 == 0, tl.log(share) * 1.4426950408889634, 0.0), k)
        hi, lo = finite_half_pair(k)
        tl.store(out_ptr + at * WORDS + step, half_bits(hi) | (half_bits(lo) << 16), mask=there)
    for word in tl.static_range(2 * NV):
        holder = at // 32 * 8 + 2 * t + word % 2
        inside = holder < n_k
        holder = tl.minimum(holder, n_k - 1)
        if NV == 1:
            c = g // 2
            part = g % 2
        elif word < 4:
            c = g
            part = g * 0 + word // 2
        else:
            c = 8 + g // 2
            part = g % 2
        if SAME:
            v = tl.load(key_ptr + holder * D + c, mask=c < DV, other=0.0).to(tl.float64)
        else:
            v = tl.load(value_ptr + holder * DV + c, mask=c < DV, other=0.0).to(tl.float64)
        v -= tl.load(centre_at(frame_ptr, D + c), mask=c < DV, other=0.0)
        v = tl.where(c == DV, 1.0, v)
        if IN_VALUES:
            v *= tl.load(mass_ptr + holder).to(tl.float64) * inverse_mass(frame_ptr)
        v = tl.where(inside, v, 0.0)
        hi = round_tf32(v.to(tl.float32))
        lo = round_tf32((v - hi.to(tl.float64)).to(tl.float32))
        word_bits = tl.where(part == 0, hi, lo).to(tl.int32, bitcast=True)
        tl.store(out_ptr + at * WORDS + 2 * KS + word, word_bits, mask=there)
