"""The fused kernel and the merge of its chunks."""

from __future__ import annotations

import pytest
import torch

from attention.gpu.problems import problem
from metastable.attention.gpu import large
from metastable.attention.gpu.frame import frame_of
from metastable.attention.gpu.large import attend_large


@pytest.mark.parametrize("weight", ["equal", "zeros"])
def test_chunks_of_keys_do_not_show(emulated: None, monkeypatch: pytest.MonkeyPatch, weight: str) -> None:
    """One chunk of all keys and four chunks, the last of which ends inside a block, have one result."""
    case = problem(1, 20, 64 * 3 + 17, 12, None, "uniform", weight, "cpu")
    frame = frame_of(*case, 20.0)
    found = []
    for chunks in ((64 * 4, 1), (64, 4)):
        monkeypatch.setattr(large, "chunks_of_blocks", lambda *_, chunks=chunks: chunks)
        found.append(attend_large(*case, frame))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=2e-6)


def test_a_block_without_mass_leaves_no_trace(emulated: None) -> None:
    """The first 64 keys, a whole block, have mass zero: the running maximum starts finite, so nothing is NaN."""
    q, k, _, m = problem(2, 10, 100, 16, None, "uniform", "equal", "cpu")
    without = torch.where(torch.arange(100) < 64, 0.0, m)
    rest = k[64:].contiguous()
    few = (q, rest, rest, m[64:].contiguous())
    mean, log_partition = attend_large(q, k, k, without, frame_of(q, k, k, without, 5.0))
    expected = attend_large(*few, frame_of(*few, 5.0))
    torch.testing.assert_close(mean, expected[0], rtol=0, atol=2e-6)
    torch.testing.assert_close(log_partition, expected[1], rtol=0, atol=2e-6)
