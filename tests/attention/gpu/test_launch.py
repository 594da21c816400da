"""How work is cut into programs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from metastable.attention.gpu.launch import (
    FUSED_PROGRAMS,
    LEAST_CHUNK,
    PROGRAMS,
    blocks,
    chunks_of_blocks,
    chunks_of_keys,
    power_of_two,
)

LENGTHS = st.integers(1, 10**8)
CARDS = st.sampled_from([1, 24, 108, 132])


@given(LENGTHS, st.integers(1, 4096))
def test_blocks_cover_a_length_and_none_is_empty(length: int, block: int) -> None:
    count = blocks(length, block)
    assert (count - 1) * block < length <= count * block


@given(st.integers(1, 2**20))
def test_power_of_two_is_the_least(length: int) -> None:
    power = power_of_two(length)
    assert power & (power - 1) == 0 and power // 2 < length <= power


@given(st.integers(1, 10**6), LENGTHS, st.sampled_from([64, 256]), st.sampled_from([4, 5]), CARDS)
def test_chunks_cover_the_keys(row_blocks: int, n_k: int, flush: int, resident: int, processors: int) -> None:
    """Every chunk has keys, all but the last are whole, and the second axis of a CUDA grid holds them."""
    chunk, chunks = chunks_of_keys(row_blocks, n_k, flush, resident, processors)
    assert chunk % flush == 0
    assert (chunks - 1) * chunk < n_k <= chunks * chunk
    assert chunks <= 65535


@given(st.integers(1, 10**5), st.integers(10**6, 10**8), CARDS)
def test_chunks_fill_the_card_where_there_is_work(row_blocks: int, n_k: int, processors: int) -> None:
    """At least PROGRAMS per multiprocessor but for the rounding of a chunk to whole flushes."""
    _, chunks = chunks_of_keys(row_blocks, n_k, 256, 5, processors)
    wanted = min(blocks(PROGRAMS * processors, row_blocks), blocks(n_k, LEAST_CHUNK), 30000)
    assert chunks >= blocks(n_k, blocks(blocks(n_k, wanted), 256) * 256)


def test_chunks_fill_the_last_round() -> None:
    """98 blocks of rows, 5 programs at once on each of 132 multiprocessors: under 1% is idle at the end."""
    _, chunks = chunks_of_keys(98, 10**6, 256, 5, 132)
    rounds = 98 * chunks / (5 * 132)
    assert blocks(rounds, 1) / rounds < 1.01
    fewest = blocks(PROGRAMS * 132, 98)
    assert fewest <= chunks <= 2 * fewest


@given(st.integers(1, 10**5), LENGTHS, st.sampled_from([32, 64]), CARDS)
def test_chunks_of_blocks_cover_the_keys(row_blocks: int, n_k: int, block_keys: int, processors: int) -> None:
    chunk, chunks = chunks_of_blocks(row_blocks, n_k, block_keys, processors)
    assert chunk % block_keys == 0
    assert (chunks - 1) * chunk < n_k <= chunks * chunk
    assert chunks == 1 or row_blocks * chunks <= FUSED_PROGRAMS * processors
