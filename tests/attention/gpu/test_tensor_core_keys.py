"""Layouts and grids of the kernels on tensor cores."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from metastable.attention.gpu.frame import Frame
from metastable.attention.gpu.packing import Masses
from metastable.attention.gpu.tensor_core_keys import REACH, STEPS, tensor_core_grid, tensor_core_layout

DIMENSIONS = st.integers(1, 8)
SIZES = st.floats(1e-6, 1e6)


@given(DIMENSIONS, DIMENSIONS, st.sampled_from(Masses), st.booleans())
def test_words_hold_coordinates_and_columns(d: int, d_v: int, masses: Masses, shifted: bool) -> None:
    """Four coordinates to a product of scores; two columns, upper and lower, per value and for the ones."""
    frame = Frame(torch.zeros(1), True, True, 1.0, 1.0, 1.0, 1.0)
    layout = tensor_core_layout(d, d_v, frame, masses, shifted)
    assert 4 * layout.depth >= d + shifted + (masses is Masses.AS_LOG) > 4 * (layout.depth - 1)
    assert 8 * layout.columns >= 2 * (d_v + 1) > 8 * (layout.columns - 1)
    assert layout.words % 4 == 0 and layout.words >= 2 * (layout.depth + layout.columns)


@given(SIZES, SIZES, st.floats(1e-6, REACH))
def test_queries_keys_and_shifts_fit_float16(length: float, radius: float, reach: float) -> None:
    """In their units queries and shifts stay below 2^14 and keys below 1, or 2^11 where the queries are huge."""
    frame = Frame(torch.zeros(1), True, True, reach / (length * radius), length, radius, radius)
    layout = tensor_core_layout(3, 3, frame, Masses.EQUAL, True)
    assert frame.scale * frame.length * layout.key_unit <= 2.0**14
    assert frame.reach / layout.shift_unit <= 2.0**14
    assert frame.radius / layout.key_unit <= max(1.0, frame.reach / 2.0**12)
    assert frame.radius / layout.key_unit < 2.0**15


@given(st.integers(1, 10**6), st.integers(1, 10**5), st.sampled_from([2, 3]))
def test_programs_cover_rows_and_groups(n_q: int, steps: int, tiles: int) -> None:
    groups = steps * STEPS
    warps, row_blocks, chunk, chunks = tensor_core_grid(n_q, groups, 3, tiles, 132)
    rows = 16 * tiles * warps
    assert (row_blocks - 1) * rows < n_q <= row_blocks * rows
    assert chunk % STEPS == 0 and (chunks - 1) * chunk < groups <= chunks * chunk
    assert warps in (1, 2, 4, 8) and (warps == 1 or n_q > rows // 2)
