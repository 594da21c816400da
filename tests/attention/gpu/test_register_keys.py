"""Layouts and grids of the kernels on registers."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metastable.attention.gpu.packing import Masses
from metastable.attention.gpu.register_keys import FLUSH, ROWS_PER_THREAD, THREADS, register_grid, register_layout

DIMENSIONS = st.integers(1, 8)


@given(DIMENSIONS, DIMENSIONS, st.sampled_from(Masses), st.booleans())
def test_a_row_holds_what_is_read_of_a_key(d: int, d_v: int, masses: Masses, double: bool) -> None:
    """Keys, values of their own, masses; whole loads of 16 bytes, or 8 for two float32 numbers."""
    layout = register_layout(d, d_v, False, masses, double)
    needed = d + d_v + (masses is not Masses.EQUAL)
    assert layout.separate and layout.mass_place == d + d_v
    assert needed <= layout.width < needed + 4
    bytes_of_a_row = layout.width * (8 if double else 4)
    assert bytes_of_a_row % 16 == 0 or (layout.width == 2 and not double)


@pytest.mark.parametrize(
    ("masses", "double", "width", "separate"),
    [
        (Masses.EQUAL, False, 2, False),
        (Masses.EQUAL, True, 2, False),
        (Masses.AS_LOG, False, 4, False),
        (Masses.AS_LOG, True, 4, False),
        (Masses.IN_VALUES, False, 8, True),
        (Masses.IN_VALUES, True, 6, True),
    ],
)
def test_values_that_are_the_keys_stand_apart_only_with_masses(
    masses: Masses, double: bool, width: int, separate: bool
) -> None:
    layout = register_layout(2, 2, True, masses, double)
    assert (layout.width, layout.separate) == (width, separate)


@given(st.integers(1, 10**6), st.integers(1, 10**7), st.sampled_from(sorted(ROWS_PER_THREAD.values())))
def test_programs_cover_rows_and_keys(n_q: int, n_k: int, rows_per_lane: int) -> None:
    rows, chunk, chunks = register_grid(n_q, n_k, rows_per_lane, 132)
    assert rows % THREADS == 0 and chunk % FLUSH == 0
    assert rows == THREADS or rows <= n_q  # few queries are spread over the lanes
    assert rows <= THREADS * rows_per_lane
    assert (chunks - 1) * chunk < n_k <= chunks * chunk


def test_float64_rows_take_more_registers() -> None:
    assert ROWS_PER_THREAD[torch.float64] < ROWS_PER_THREAD[torch.float32]
