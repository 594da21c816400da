"""How work is cut into programs: blocks that cover a length, and chunks of keys that fill the card."""

from __future__ import annotations

import math

import torch

PROGRAMS = 48
"""Least number of programs per multiprocessor for d <= 8, where there is work for them: several rounds of what
a multiprocessor runs at once, so that the last round does not count."""
LEAST_CHUNK = 512
"""Keys that a chunk for d <= 8 should have at least: each chunk costs a store of all sums and a read of them."""
MOST_CHUNKS = 30000
"""Chunks are the second axis of a grid, which CUDA limits to 65535."""
FUSED_PROGRAMS = 8
"""Programs per multiprocessor that the fused kernel for larger d wants at most: a few rounds of long programs."""
FUSED_LEAST_BLOCKS = 8
"""Blocks of keys that a chunk of the fused kernel should have at least: it stores a sum as wide as the values."""


def blocks(length: float, block: int) -> int:
    """How many blocks of a given size cover a length."""
    return math.ceil(length / block)


def power_of_two(length: int) -> int:
    """The least power of two that is at least `length` >= 1."""
    return 1 << (length - 1).bit_length()


def multiprocessors(device: torch.device) -> int:
    """How many multiprocessors a CUDA device has."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def chunks_of_keys(
    row_blocks: int, n_k: int, flush: int, resident: int, processors: int, wanted: int = 1
) -> tuple[int, int]:
    """(keys per chunk, a multiple of `flush`; number of chunks) for at least `PROGRAMS` per multiprocessor.

    wanted: chunks that there are at least, whatever the card.

    Of the numbers of chunks up to twice the least one, the one whose programs, `resident` of them at once on a
    multiprocessor, fill the card best to the last.
    """
    least = max(wanted, min(blocks(PROGRAMS * processors, row_blocks), blocks(n_k, LEAST_CHUNK), MOST_CHUNKS))
    most = max(least, min(2 * least, blocks(n_k, LEAST_CHUNK)))

    def idle(chunks: int) -> float:
        rounds = row_blocks * chunks / (resident * processors)
        return math.ceil(rounds) / rounds

    chunks = min(range(least, most + 1), key=idle) if most <= 256 else least
    chunk = blocks(blocks(n_k, chunks), flush) * flush
    return chunk, blocks(n_k, chunk)


def chunks_of_blocks(row_blocks: int, n_k: int, block_keys: int, processors: int) -> tuple[int, int]:
    """(keys per chunk, a multiple of `block_keys`; number of chunks) for the fused kernel at larger d."""
    wanted = FUSED_PROGRAMS * processors // row_blocks
    chunks = max(1, min(wanted, blocks(n_k, FUSED_LEAST_BLOCKS * block_keys)))
    chunk = blocks(blocks(n_k, chunks), block_keys) * block_keys
    return chunk, blocks(n_k, chunk)
