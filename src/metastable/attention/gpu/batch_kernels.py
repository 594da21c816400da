"""The kernel for many small systems at once, d and d_v <= 8: every thread owns a few query rows of one system.

A thread adds 2^{x - shift} over the keys of its system with shift = |q| |k_0|, the Cauchy-Schwarz bound where all
keys are as long as the first. Where a sum then lies outside what is `trusted`, the program repeats with the true
maximum of every row, so every beta is safe; in float64, whose exponentials know no infinity, it starts with that.
Several rows per thread share the loads: all threads of a system read the same keys, and those reads would else
be the limit.
"""

# mypy: disable-error-code="assignment, attr-defined, misc, var-annotated"
# ruff: noqa: SIM108
from __future__ import annotations

from metastable.attention.gpu.coordinates import add_multiple, add_products, repeated
from metastable.attention.gpu.instructions import exp2_weight, load_numbers, special
from metastable.attention.gpu.jit import jit, tl


@jit
def load_points(pointer: tl.tensor, COUNT: tl.constexpr, D: tl.constexpr, VECTOR: tl.constexpr) -> tl.tuple:
    """COUNT consecutive points of D coordinates, in loads of 16 bytes where they are aligned for them."""
    row = ()
    if VECTOR:
        row = load_numbers(pointer, COUNT * D)
    else:
        for c in tl.static_range(COUNT * D):
            row = row + (tl.load(pointer + c),)
    return row


@jit
def add_group(
    q: tl.tuple,
    shift: tl.tensor,
    sums: tl.tuple,
    keys: tl.tuple,
    values: tl.tuple,
    log_mass: tl.tuple,
    D: tl.constexpr,
    DV: tl.constexpr,
    GROUP: tl.constexpr,
    WEIGHTED: tl.constexpr,
    DOUBLE: tl.constexpr,
) -> tl.tuple:
    """The sums (A, S) of one row with GROUP more keys."""
    for u in tl.static_range(GROUP):
        if WEIGHTED:
            x = q[0] * keys[u * D] + (log_mass[u] - shift)
        else:
            x = q[0] * keys[u * D] - shift
        weight = exp2_weight(add_products(x, q, keys, u * D, D), DOUBLE)
        sums = add_multiple(weight, values, u * DV, sums, DV) + (sums[DV] + weight,)
    return sums


@jit
def add_keys(
    q: tl.tuple,
    shifts: tl.tuple,
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    log_mass_ptr: tl.tensor,
    n_k: tl.tensor,
    D: tl.constexpr,
    DV: tl.constexpr,
    R: tl.constexpr,
    GROUP: tl.constexpr,
    SAME: tl.constexpr,
    WEIGHTED: tl.constexpr,
    VECTOR: tl.constexpr,
    DOUBLE: tl.constexpr,
) -> tl.tuple:
    """The sums (A, S) of R rows over all keys of their system."""
    sums = repeated(repeated(shifts[0] * 0.0, DV + 1), R)
    for _ in range(0, n_k, GROUP):
        keys = load_points(key_ptr, GROUP, D, VECTOR)
        values = keys
        if not SAME:
            values = load_points(value_ptr, GROUP, DV, False)
        log_mass = keys
        if WEIGHTED:
            log_mass = load_points(log_mass_ptr, GROUP, 1, False)
        new = ()
        for r in tl.static_range(R):
            new = new + (
                add_group(q[r], shifts[r], sums[r], keys, values, log_mass, D, DV, GROUP, WEIGHTED, DOUBLE),
            )
        sums = new
        key_ptr += GROUP * D
        value_ptr += GROUP * DV
        log_mass_ptr += GROUP
    return sums


@jit
def guesses(q: tl.tuple, key_ptr: tl.tensor, D: tl.constexpr, R: tl.constexpr) -> tl.tuple:
    """|q| |k_0| for R rows: a bound of all scores where the keys have one length, and elsewhere a guess."""
    k = tl.load(key_ptr)
    length = k * k
    for c in tl.static_range(1, D):
        k = tl.load(key_ptr + c)
        length = k * k + length
    shifts = ()
    for r in tl.static_range(R):
        square = add_products(q[r][0] * q[r][0], q[r], q[r], 0, D)
        shifts = shifts + (tl.sqrt(square) * tl.sqrt(length),)
    return shifts


@jit
def maxima(
    q: tl.tuple,
    key_ptr: tl.tensor,
    log_mass_ptr: tl.tensor,
    n_k: tl.tensor,
    D: tl.constexpr,
    R: tl.constexpr,
    GROUP: tl.constexpr,
    WEIGHTED: tl.constexpr,
    VECTOR: tl.constexpr,
) -> tl.tuple:
    """The largest score of each of R rows."""
    best = ()
    for r in tl.static_range(R):
        best = best + (q[r][0] * 0.0 - float("inf"),)
    for _ in range(0, n_k, GROUP):
        keys = load_points(key_ptr, GROUP, D, VECTOR)
        log_mass = keys
        if WEIGHTED:
            log_mass = load_points(log_mass_ptr, GROUP, 1, False)
        new = ()
        for r in tl.static_range(R):
            top = best[r]
            for u in tl.static_range(GROUP):
                x = add_products(q[r][0] * keys[u * D], q[r], keys, u * D, D)
                if WEIGHTED:
                    x += log_mass[u]
                top = tl.maximum(top, x)
            new = new + (top,)
        best = new
        key_ptr += GROUP * D
        log_mass_ptr += GROUP
    return best


@jit
def batch_kernel(
    q_ptr: tl.tensor,
    key_ptr: tl.tensor,
    value_ptr: tl.tensor,
    log_mass_ptr: tl.tensor,
    scale: tl.tensor,
    mean_ptr: tl.tensor,
    log_ptr: tl.tensor,
    threads: tl.tensor,
    n_q: tl.tensor,
    n_k: tl.tensor,
    count: tl.tensor,
    trusted: tl.tensor,
    D: tl.constexpr,
    DV: tl.constexpr,
    R: tl.constexpr,
    GROUP: tl.constexpr,
    SAME: tl.constexpr,
    WEIGHTED: tl.constexpr,
    SCALES: tl.constexpr,
    VECTOR: tl.constexpr,
    DOUBLE: tl.constexpr,
    THREADS: tl.constexpr,
) -> None:
    """mean = A/S and log Z of R rows per thread; `scale`: beta log2(e), or a pointer to one per system (SCALES)."""
    thread = tl.program_id(0) * THREADS + tl.arange(0, THREADS)
    inside = thread < threads
    thread = tl.where(inside, thread, 0)
    share = n_q // R
    system = thread // share
    first = system.to(tl.int64) * n_q + (thread - system * share)
    keys = system.to(tl.int64) * n_k
    key_ptr += keys * D
    value_ptr += keys * DV
    log_mass_ptr += keys
    if SCALES:
        scale = tl.load(scale + system)
    q = ()
    for r in tl.static_range(R):
        row = ()
        for c in tl.static_range(D):
            row = row + (tl.load(q_ptr + (first + r * share) * D + c) * scale,)
        q = q + (row,)
    if DOUBLE:
        shifts = maxima(q, key_ptr, log_mass_ptr, n_k, D, R, GROUP, WEIGHTED, VECTOR)
    else:
        shifts = guesses(q, key_ptr, D, R)
    sums = add_keys(
        q, shifts, key_ptr, value_ptr, log_mass_ptr, n_k, D, DV, R, GROUP, SAME, WEIGHTED, VECTOR, DOUBLE
    )
    if not DOUBLE:
        doubtful = tl.zeros((THREADS,), tl.int32)
        for r in tl.static_range(R):
            good = (sums[r][DV] * trusted >= 1.0) & (sums[r][DV] <= trusted)
            doubtful = tl.where(good, doubtful, 1)
        if tl.max(doubtful, axis=0) > 0:
            shifts = maxima(q, key_ptr, log_mass_ptr, n_k, D, R, GROUP, WEIGHTED, VECTOR)
            sums = add_keys(
                q, shifts, key_ptr, value_ptr, log_mass_ptr, n_k, D, DV, R, GROUP, SAME, WEIGHTED, VECTOR, DOUBLE
            )
    for r in tl.static_range(R):
        place = first + r * share
        if DOUBLE:
            inverse = 1.0 / sums[r][DV]
        else:
            inverse = special("rcp.approx.ftz.f32 $0, $1;", sums[r][DV])
        for c in tl.static_range(DV):
            tl.store(mean_ptr + place * DV + c, sums[r][c] * inverse, mask=inside)
        partition = sums[r][DV]
        if not WEIGHTED:
            partition = partition / count
        if DOUBLE:
            bits = tl.log2(partition)
        else:
            bits = special("lg2.approx.ftz.f32 $0, $1;", partition)
        tl.store(log_ptr + place, (shifts[r] + bits) * 0.6931471805599453, mask=inside)
