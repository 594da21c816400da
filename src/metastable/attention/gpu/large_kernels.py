"""Kernels of fused attention on tensor cores at float32 accuracy for 8 < d <= 256: float16 pairs, online softmax.

Scores and values are products of float16 pairs (`half_pairs`), three tensor-core products each. The softmax runs
online over blocks of keys with the running maximum of every row, so every beta is safe. Each block's value product
starts from zero and is added to the running sum by an ordinary float32 addition: tensor cores truncate when they
accumulate, and over 1e5 keys that bias alone would cost four digits. At d = 256 columns are taken 64 at a time, so
that these products fit the registers beside the sums.
"""

# mypy: disable-error-code="assignment, attr-defined"
from __future__ import annotations

from metastable.attention.gpu.coordinates import repeated
from metastable.attention.gpu.frame import centre_at, log_partition
from metastable.attention.gpu.half_pairs import half_pair
from metastable.attention.gpu.jit import jit, tl


@jit
def load_block(
    pointer: tl.tensor,
    start: tl.tensor,
    n_k: tl.tensor,
    W: tl.constexpr,
    H: tl.constexpr,
    BN: tl.constexpr,
    MASKED: tl.constexpr,
) -> tl.tuple:
    """Rows start..start+BN of a (n_k, W) matrix, zeros beyond its end, as W / H blocks of H columns."""
    at = start + tl.arange(0, BN)
    pointers = pointer + at.to(tl.int64)[:, None] * W + tl.arange(0, H)[None, :]
    parts = ()
    for part in tl.static_range(W // H):
        if MASKED:
            parts = parts + (tl.load(pointers + part * H, mask=(at < n_k)[:, None], other=0.0),)
        else:
            parts = parts + (tl.load(pointers + part * H),)
    return parts


@jit
def add_block(
    state: tl.tuple,
    q_hi: tl.tuple,
    q_lo: tl.tuple,
    scale: tl.tensor,
    k_hi_ptr: tl.tensor,
    k_lo_ptr: tl.tensor,
    v_hi_ptr: tl.tensor,
    v_lo_ptr: tl.tensor,
    log_mass_ptr: tl.tensor,
    start: tl.tensor,
    n_k: tl.tensor,
    D: tl.constexpr,
    H: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    SAME: tl.constexpr,
    WEIGHTED: tl.constexpr,
    MASKED: tl.constexpr,
) -> tl.tuple:
    """The online softmax state (parts of A, S, maximum) with one more block of keys."""
    acc, total, top = state
    k_hi = load_block(k_hi_ptr, start, n_k, D, H, BN, MASKED)
    k_lo = load_block(k_lo_ptr, start, n_k, D, H, BN, MASKED)
    # The small terms come first: tensor cores truncate to the size that the sum has by then.
    scores = tl.zeros((BM, BN), tl.float32)
    for part in tl.static_range(D // H):
        scores = tl.dot(q_lo[part], k_hi[part].T, scores)
        scores = tl.dot(q_hi[part], k_lo[part].T, scores)
    for part in tl.static_range(D // H):
        scores = tl.dot(q_hi[part], k_hi[part].T, scores)
    at = start + tl.arange(0, BN)
    if WEIGHTED:
        if MASKED:
            log_mass = tl.load(log_mass_ptr + at, mask=at < n_k, other=-float("inf"))
        else:
            log_mass = tl.load(log_mass_ptr + at)
        scores = scores * scale + log_mass[None, :]
        new_top = tl.maximum(top, tl.max(scores, axis=1))
        p = tl.exp2(scores - new_top[:, None])
    else:
        seen = scores
        if MASKED:
            seen = tl.where((at < n_k)[None, :], scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(seen, axis=1) * scale)
        p = tl.exp2(scores * scale - new_top[:, None])
        if MASKED:
            p = tl.where((at < n_k)[None, :], p, 0.0)
    fade = tl.exp2(top - new_top)
    total = total * fade + tl.sum(p, axis=1)
    p_hi, p_lo = half_pair(p)
    if SAME:
        v_hi = k_hi
        v_lo = k_lo
    else:
        v_hi = load_block(v_hi_ptr, start, n_k, D, H, BN, MASKED)
        v_lo = load_block(v_lo_ptr, start, n_k, D, H, BN, MASKED)
    new = ()
    for part in tl.static_range(D // H):
        product = tl.dot(p_lo, v_hi[part])
        product = tl.dot(p_hi, v_lo[part], product)
        product = tl.dot(p_hi, v_hi[part], product)
        new = new + (acc[part] * fade[:, None] + product,)
    return new, total, new_top


@jit
def fused_kernel(
    q_hi_ptr: tl.tensor,
    q_lo_ptr: tl.tensor,
    scale: tl.tensor,
    k_hi_ptr: tl.tensor,
    k_lo_ptr: tl.tensor,
    v_hi_ptr: tl.tensor,
    v_lo_ptr: tl.tensor,
    log_mass_ptr: tl.tensor,
    acc_ptr: tl.tensor,
    total_ptr: tl.tensor,
    top_ptr: tl.tensor,
    n_q: tl.tensor,
    n_k: tl.tensor,
    chunk: tl.tensor,
    D: tl.constexpr,
    H: tl.constexpr,
    SAME: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
) -> None:
    """A (unnormalised mean), S and maximum of BM rows over one chunk of keys; all matrices are D wide."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = rows < n_q
    q_hi = load_block(q_hi_ptr, tl.program_id(0) * BM, n_q, D, H, BM, True)
    q_lo = load_block(q_lo_ptr, tl.program_id(0) * BM, n_q, D, H, BM, True)
    zeros = repeated(tl.zeros((BM, H), tl.float32), D // H)
    # The first maximum is finite, so that a block whose keys all have mass zero makes no NaN.
    state = (zeros, tl.zeros((BM,), tl.float32), tl.full((BM,), -1.0e38, tl.float32))
    first = tl.program_id(1) * chunk
    last = tl.minimum(first + chunk, n_k)
    full = first + (last - first) // BN * BN
    for start in range(first, full, BN):
        state = add_block(
            state, q_hi, q_lo, scale, k_hi_ptr, k_lo_ptr, v_hi_ptr, v_lo_ptr, log_mass_ptr, start, n_k,
            D, H, BM, BN, SAME, WEIGHTED, False,
        )  # fmt: skip
    if full < last:
        state = add_block(
            state, q_hi, q_lo, scale, k_hi_ptr, k_lo_ptr, v_hi_ptr, v_lo_ptr, log_mass_ptr, full, n_k,
            D, H, BM, BN, SAME, WEIGHTED, True,
        )  # fmt: skip
    acc, total, top = state
    place = tl.program_id(1).to(tl.int64) * n_q + rows
    for part in tl.static_range(D // H):
        columns = part * H + tl.arange(0, H)
        tl.store(acc_ptr + place[:, None] * D + columns[None, :], acc[part], mask=inside[:, None])
    tl.store(total_ptr + place, total, mask=inside)
    tl.store(top_ptr + place, top, mask=inside)


@jit
def merge_kernel(
    acc_ptr: tl.tensor,
    total_ptr: tl.tensor,
    top_ptr: tl.tensor,
    q_ptr: tl.tensor,
    frame_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    log_ptr: tl.tensor,
    n_q: tl.tensor,
    d: tl.tensor,
    d_v: tl.tensor,
    chunks: tl.tensor,
    unit: tl.tensor,
    D: tl.constexpr,
    DV: tl.constexpr,
    ROWS: tl.constexpr,
) -> None:
    """mean = c_v + unit A/S and log Z = beta <q, c> + ln 2 (top + log2 S) + log of the largest mass."""
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = rows < n_q
    column, wide = tl.arange(0, D), tl.arange(0, DV)
    top = tl.full((ROWS,), -float("inf"), tl.float32)
    for s in range(0, chunks):
        top = tl.maximum(top, tl.load(top_ptr + s.to(tl.int64) * n_q + rows, mask=inside, other=0.0))
    total = tl.zeros((ROWS,), tl.float64)
    acc = tl.zeros((ROWS, DV), tl.float64)
    for s in range(0, chunks):
        place = s.to(tl.int64) * n_q + rows
        fade = tl.exp2(tl.load(top_ptr + place, mask=inside, other=0.0) - top)
        total += (tl.load(total_ptr + place, mask=inside, other=1.0) * fade).to(tl.float64)
        part = tl.load(acc_ptr + place[:, None] * DV + wide[None, :], mask=inside[:, None], other=0.0)
        acc += (part * fade[:, None]).to(tl.float64)
    centre = tl.load(centre_at(frame_ptr, d + wide), mask=wide < d_v, other=0.0)
    mean = centre[None, :] + acc / total[:, None] * unit
    tl.store(mean_ptr + rows[:, None] * d_v + wide[None, :], mean, mask=inside[:, None] & (wide < d_v)[None, :])
    seen = inside[:, None] & (column < d)[None, :]
    q = tl.load(q_ptr + rows[:, None] * d + column[None, :], mask=seen, other=0.0).to(tl.float64)
    key_centre = tl.load(centre_at(frame_ptr, column), mask=column < d, other=0.0)
    centre_score = tl.sum(q * key_centre[None, :], axis=1)
    sum_bits = tl.log(total) * 1.4426950408889634
    tl.store(log_ptr + rows, log_partition(frame_ptr, centre_score, top.to(tl.float64), sum_bits), mask=inside)
