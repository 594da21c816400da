"""Kernels for direct attention with d, d_v <= 8 at float32 accuracy on tensor cores, beside the exponentials.

    x_ij = beta log2(e) <q_i, k_j> - shift_i,      S_i = sum_j m_j 2^{x_ij},      A_i = sum_j m_j 2^{x_ij} v_j

A warp holds tiles of 16 query rows and meets 8 keys at a time. Scores are one product of float16 pairs per four
coordinates: the coordinate c of a query and of a key fill four places of the inner dimension with

    (q_hi, k_hi), (q_hi, k_lo), (q_lo, k_hi), (q_lo, k_lo),      q_c = q_hi + q_lo,  k_c = k_hi + k_lo to 2^-23.

The shift is one more coordinate (-shift against 1), and log2 of the mass another (1 against it). Each lane then
exponentiates the four scores that it holds, splits the weights into two TF32 parts, and the same registers enter
the products with the values (TF32 pairs, too) as they stand: the places of the keys among the lanes differ between
the two instructions, so the packed values are permuted instead. Nothing crosses lanes outside the tensor cores.
Tensor cores truncate when they accumulate: their sums are flushed into ordinary ones every `STEPS` times 8 keys.
"""

# mypy: disable-error-code="assignment, attr-defined, misc, var-annotated"
from __future__ import annotations

from metastable.attention.gpu.jit import jit, tl
from metastable.attention.gpu.lanes import exp2_special


@jit
def half_pair(x: tl.tensor) -> tl.tuple:
    """(hi, lo) in float16 with hi + lo = x to 2^-23, for |x| < 2^15; an infinite x has no lo."""
    hi = x.to(tl.float32).to(tl.float16)
    lo = (x - hi.to(tl.float64)).to(tl.float32).to(tl.float16)
    return hi, tl.where(x > -float("inf"), lo, 0.0).to(tl.float16)


@jit
def half_bits(x: tl.tensor) -> tl.tensor:
    """The 16 bits of a float16 number in the lower half of a word."""
    return x.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF


@jit
def round_tf32(x: tl.tensor) -> tl.tensor:
    """The nearest number with 11 significant bits, what TF32 products read of a float32 number."""
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@jit
def multiply_scores(a: tl.tuple, b: tl.tuple, KS: tl.constexpr) -> tl.tuple:
    """The 16 x 8 scores of a tile of queries and a group of keys, four per lane, from KS products of depth 16."""
    x = tl.inline_asm_elementwise(
        """{ .reg .f32 z; mov.f32 z, 0f00000000;
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {z,z,z,z}; }""",
        "=f,=f,=f,=f,r,r,r,r,r,r",
        [a[0], a[1], a[2], a[3], b[0], b[1]],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True,
        pack=1,
    )
    for s in tl.static_range(1, KS):
        x = tl.inline_asm_elementwise(
            """mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9},
            {$10,$11,$12,$13};""",
            "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f",
            [a[4 * s], a[4 * s + 1], a[4 * s + 2], a[4 * s + 3], b[2 * s], b[2 * s + 1], x[0], x[1], x[2], x[3]],
            dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
            is_pure=True,
            pack=1,
        )
    return x


@jit
def add_values(weights: tl.tuple, b: tl.tuple, PLACE: tl.constexpr, sums: tl.tuple) -> tl.tuple:
    """sums + weights times values; the weights stand as `multiply_scores` left them."""
    return tl.inline_asm_elementwise(
        """mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9},
        {$10,$11,$12,$13};""",
        "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f",
        [
            weights[0],
            weights[2],
            weights[1],
            weights[3],
            b[PLACE],
            b[PLACE + 1],
            sums[0],
            sums[1],
            sums[2],
            sums[3],
        ],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True,
        pack=1,
    )


@jit
def load_group(pointer: tl.tensor, WORDS: tl.constexpr) -> tl.tuple:
    """This lane's words of a group of keys, in loads of 16 bytes."""
    words = ()
    for _ in tl.static_range(WORDS // 4):
        a, b, c, d = tl.inline_asm_elementwise(
            "ld.global.nc.v4.b32 {$0, $1, $2, $3}, [$4];",
            "=r,=r,=r,=r,l",
            [pointer],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
            is_pure=True,
            pack=1,
        )
        words = words + (a, b, c, d)
        pointer += 4
    return words


@jit
def load_tile(
    q_ptr: tl.tensor,
    first: tl.tensor,
    t: tl.tensor,
    shifts: tl.tuple,
    scale: tl.tensor,
    n_q: tl.tensor,
    D: tl.constexpr,
    KS: tl.constexpr,
    SHIFTED: tl.constexpr,
    MASSED: tl.constexpr,
) -> tl.tuple:
    """This lane's words of the tile of queries whose rows are `first` and `first` + 8: twice the same half each."""
    words = ()
    for step in tl.static_range(2 * KS):
        c = t // 2 + 2 * step
        for side in tl.static_range(2):
            row = first + 8 * side
            x = tl.load(q_ptr + row * D + c, mask=(row < n_q) & (c < D), other=0.0).to(tl.float64) * scale
            if SHIFTED:
                x = tl.where(c == D, -shifts[side].to(tl.float64), x)
            if MASSED:
                x = tl.where(c == D + SHIFTED, 1.0, x)
            hi, lo = half_pair(x)
            words = words + (half_bits(tl.where(t % 2 == 0, hi, lo)) * 65537,)
    return words


@jit
def row_shift(
    q_ptr: tl.tensor,
    frame_ptr: tl.tensor,
    shift_ptr: tl.tensor,
    row: tl.tensor,
    inside: tl.tensor,
    unit: tl.tensor,
    D: tl.constexpr,
    GIVEN: tl.constexpr,
) -> tl.tensor:
    """The shift of a row over `unit`, as a float16 pair holds it: given, or |q| max|k - c| in whole bits."""
    if GIVEN:
        shift = tl.load(shift_ptr + row, mask=inside, other=0.0).to(tl.float64)
    else:
        square = tl.zeros(row.shape, tl.float64)
        for c in tl.static_range(D):
            x = tl.load(q_ptr + row * D + c, mask=inside, other=0.0).to(tl.float64)
            square += x * x
        shift = tl.ceil(tl.sqrt(square) * tl.load(frame_ptr) * tl.load(frame_ptr + 1))
    hi, lo = half_pair(shift / unit)
    return hi.to(tl.float32) + lo.to(tl.float32)


@jit
def add_tile(a: tl.tuple, b: tl.tuple, sums: tl.tuple, KS: tl.constexpr, NV: tl.constexpr) -> tl.tuple:
    """The sums of one tile, 4 per lane and block of 8 columns, with one more group of keys."""
    x = multiply_scores(a, b, KS)
    high = ()
    low = ()
    for e in tl.static_range(4):
        weight = exp2_special(x[e])
        top = weight.to(tl.int32, bitcast=True) & -8192
        high = high + (top,)
        low = low + ((weight - top.to(tl.float32, bitcast=True)).to(tl.int32, bitcast=True),)
    if NV == 1:
        new = (add_values(high, b, 2 * KS, add_values(low, b, 2 * KS, sums[0])),)
    else:
        # The values' lower parts have columns of their own, which meet only the upper parts of the weights.
        new = (
            add_values(high, b, 2 * KS, add_values(low, b, 2 * KS, sums[0])),
            add_values(high, b, 2 * KS + 2, sums[1]),
        )
        if NV == 3:
            new = new + (add_values(high, b, 2 * KS + 4, add_values(low, b, 2 * KS + 4, sums[2])),)
    return new


@jit
def fold_columns(sums: tl.tuple, NV: tl.constexpr) -> tl.tuple:
    """Upper and lower columns added: (component t of two rows), or (2t, 2t + 1 of two rows[, the mass of both])."""
    if NV == 1:
        folded = (sums[0][0] + sums[0][1], sums[0][2] + sums[0][3])
    else:
        folded = ()
        for e in tl.static_range(4):
            folded = folded + (sums[0][e] + sums[1][e],)
        if NV == 3:
            folded = folded + (sums[2][0] + sums[2][1], sums[2][2] + sums[2][3])
    return folded


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
    SHIFT: tl.constexpr,
    MASSED: tl.constexpr,
    TILES: tl.constexpr,
    STEPS: tl.constexpr,
    THREADS: tl.constexpr,
) -> None:
    """Partial sums over one chunk of groups: out[chunk, 0:DV] = A, out[chunk, DV] = S.

    SHIFT 0: none; 1: the bound; 2: given. The shift that was used is written by the programs of the first chunk.
    """
    OUT: tl.constexpr = 2 * NV if NV != 2 else 4
    thread = tl.arange(0, THREADS)
    t = thread % 4
    first = tl.program_id(0).to(tl.int64) * (THREADS // 2 * TILES) + thread // 32 * (16 * TILES) + thread % 32 // 4
    scale = tl.load(frame_ptr) * key_unit
    tiles = ()
    for i in tl.static_range(TILES):
        shifts = ()
        if SHIFT > 0:
            for side in tl.static_range(2):
                row = first + (16 * i + 8 * side)
                shift = row_shift(q_ptr, frame_ptr, shift_ptr, row, row < n_q, shift_unit, D, SHIFT == 2)
                if tl.program_id(1) == 0:
                    tl.store(shift_ptr + row, shift * shift_unit, mask=(row < n_q) & (t == 0))
                shifts = shifts + (shift,)
        tiles = tiles + (load_tile(q_ptr, first + 16 * i, t, shifts, scale, n_q, D, KS, SHIFT > 0, MASSED),)
    zero = tl.zeros((THREADS,), tl.float32)
    zeros = ()
    for _ in tl.static_range(NV):
        zeros = zeros + ((zero, zero, zero, zero),)
    totals = ()
    for _ in tl.static_range(TILES * OUT):
        totals = totals + (zero,)
    begin = tl.program_id(1) * chunk
    at = key_ptr + (begin.to(tl.int64) * 32 + thread % 32) * WORDS
    for _ in range(begin, tl.minimum(begin + chunk, groups), STEPS):
        parts = ()
        for _i in tl.static_range(TILES):
            parts = parts + (zeros,)
        for u in tl.static_range(STEPS):
            b = load_group(at + u * (32 * WORDS), WORDS)
            new = ()
            for j in tl.static_range(TILES):
                new = new + (add_tile(tiles[j], b, parts[j], KS, NV),)
            parts = new
        at += STEPS * 32 * WORDS
        flushed = ()
        for j in tl.static_range(TILES):
            folded = fold_columns(parts[j], NV)
            for o in tl.static_range(OUT):
                flushed = flushed + (totals[j * OUT + o] + folded[o],)
        totals = flushed
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
    MASSED: tl.constexpr,
    TILES: tl.constexpr,
    THREADS: tl.constexpr,
) -> None:
    """out[4 chunk + t, i] = max beta log2(e) <q_i, k_j> + log2 m_j over a quarter of the keys of one chunk."""
    thread = tl.arange(0, THREADS)
    t = thread % 4
    first = tl.program_id(0).to(tl.int64) * (THREADS // 2 * TILES) + thread // 32 * (16 * TILES) + thread % 32 // 4
    scale = tl.load(frame_ptr) * key_unit
    none = tl.zeros((THREADS,), tl.float32)
    tiles = ()
    best = ()
    for i in tl.static_range(TILES):
        tiles = tiles + (load_tile(q_ptr, first + 16 * i, t, (none, none), scale, n_q, D, KS, True, MASSED),)
        best = best + (none - float("inf"), none - float("inf"))
    begin = tl.program_id(1) * chunk
    at = key_ptr + (begin.to(tl.int64) * 32 + thread % 32) * WORDS
    for _ in range(begin, tl.minimum(begin + chunk, groups)):
        b = load_group(at, WORDS)
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
    WEIGHTS: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """The words that every lane reads of every group of 8 keys, for `tile_sums_kernel`.

    WEIGHTS 0: equal masses; 1: values multiplied by the mass; 2: log2 of the mass as a coordinate. Groups are
    filled up with copies of the last key whose values and mass are zero.
    """
    at = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = at < groups.to(tl.int64) * 32
    g = at % 32 // 4
    t = at % 4
    key = tl.minimum(at // 32 * 8 + g, n_k - 1)
    for step in tl.static_range(2 * KS):
        c = t // 2 + 2 * step
        k = tl.load(key_ptr + key * D + c, mask=c < D, other=0.0).to(tl.float64)
        k = (k - tl.load(frame_ptr + 4 + c, mask=c < D, other=0.0)) / key_unit
        if SHIFTED:
            k = tl.where(c == D, shift_unit, k)
        if WEIGHTS == 2:
            share = tl.load(mass_ptr + key).to(tl.float64) * tl.load(frame_ptr + 3)
            # Against the lower part of 1, which is 0, stands 0: the logarithm may be infinite.
            k = tl.where(c == D + SHIFTED, tl.where(t % 2 == 0, tl.log(share) * 1.4426950408889634, 0.0), k)
        hi, lo = half_pair(k)
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
        v -= tl.load(frame_ptr + 4 + D + c, mask=c < DV, other=0.0)
        v = tl.where(c == DV, 1.0, v)
        if WEIGHTS == 1:
            v *= tl.load(mass_ptr + holder).to(tl.float64) * tl.load(frame_ptr + 3)
        v = tl.where(inside, v, 0.0)
        hi = round_tf32(v.to(tl.float32))
        lo = round_tf32((v - hi.to(tl.float64)).to(tl.float32))
        word_bits = tl.where(part == 0, hi, lo).to(tl.int32, bitcast=True)
        tl.store(out_ptr + at * WORDS + 2 * KS + word, word_bits, mask=there)
