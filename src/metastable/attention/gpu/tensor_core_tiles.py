"""What the lanes of one warp hold and do where direct attention for d, d_v <= 8 runs on tensor cores.

A warp holds tiles of 16 query rows and meets 8 keys at a time. Scores are one product of float16 pairs per four
coordinates: the coordinate c of a query and of a key fill four places of the inner dimension with

    (q_hi, k_hi), (q_hi, k_lo), (q_lo, k_hi), (q_lo, k_lo),      q_c = q_hi + q_lo,  k_c = k_hi + k_lo to 2^-23.

The shift is one more coordinate (-shift against 1), and log2 of the mass another (1 against it). Each lane then
exponentiates the four scores that it holds, splits the weights into two TF32 parts, and the same registers enter
the products with the values (TF32 pairs, too) as they stand: the places of the keys among the lanes differ between
the two instructions, so the packed values are permuted instead. Nothing crosses lanes outside the tensor cores.
"""

# mypy: disable-error-code="assignment, attr-defined, misc, var-annotated"
from __future__ import annotations

from metastable.attention.gpu.frame import key_radius, scale_of
from metastable.attention.gpu.half_pairs import half_pair
from metastable.attention.gpu.instructions import exp2_special
from metastable.attention.gpu.jit import jit, tl


@jit
def finite_half_pair(x: tl.tensor) -> tl.tuple:
    """(hi, lo) in float16 with hi + lo = x to 2^-23; an x of -infinity has no lo."""
    hi, lo = half_pair(x)
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
def multiply_add(ASSEMBLY: tl.constexpr, a: tl.tuple, b: tl.tuple, sums: tl.tuple) -> tl.tuple:
    """sums + a b for a tile of 16 rows and 8 columns, four sums per lane, by one tensor-core instruction."""
    return tl.inline_asm_elementwise(
        ASSEMBLY,
        "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f",
        [a[0], a[1], a[2], a[3], b[0], b[1], sums[0], sums[1], sums[2], sums[3]],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True,
        pack=1,
    )


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
        x = multiply_add(
            """mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9},
            {$10,$11,$12,$13};""",
            (a[4 * s], a[4 * s + 1], a[4 * s + 2], a[4 * s + 3]),
            (b[2 * s], b[2 * s + 1]),
            x,
        )
    return x


@jit
def add_values(weights: tl.tuple, b: tl.tuple, PLACE: tl.constexpr, sums: tl.tuple) -> tl.tuple:
    """sums + weights times values; the weights stand as `multiply_scores` left them."""
    return multiply_add(
        """mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9},
        {$10,$11,$12,$13};""",
        (weights[0], weights[2], weights[1], weights[3]),
        (b[PLACE], b[PLACE + 1]),
        sums,
    )


@jit
def first_row(TILES: tl.constexpr, THREADS: tl.constexpr) -> tl.tensor:
    """The row of its warp's first tile that a lane holds, beside the one 8 below it."""
    thread = tl.arange(0, THREADS)
    of_warp = tl.program_id(0).to(tl.int64) * (THREADS // 2 * TILES) + thread // 32 * (16 * TILES)
    return of_warp + thread % 32 // 4


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
    AS_LOG: tl.constexpr,
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
            if AS_LOG:
                x = tl.where(c == D + SHIFTED, 1.0, x)
            hi, lo = finite_half_pair(x)
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
        shift = tl.ceil(tl.sqrt(square) * scale_of(frame_ptr) * key_radius(frame_ptr))
    hi, lo = finite_half_pair(shift / unit)
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
