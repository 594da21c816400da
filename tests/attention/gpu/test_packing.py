"""What is asked of packed keys, and what both kinds of them give."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest
import torch

from attention.gpu.problems import problem
from metastable.attention.gpu.frame import frame_of
from metastable.attention.gpu.packing import Masses, PackedKeys, Packing
from metastable.attention.gpu.register_keys import RegisterKeys
from metastable.attention.gpu.tensor_core_keys import TensorCoreKeys


@pytest.mark.parametrize("kind", [RegisterKeys, TensorCoreKeys])
@pytest.mark.parametrize("shifted", [False, True])
def test_packed_keys_give_sums_and_shifts(emulated: None, kind: type[PackedKeys], shifted: bool) -> None:
    """(chunks, d_v + 1, n_q) sums; no shifts, or bounds of all scores, or those given."""
    q, k, v, m = problem(0, 13, 30, 3, 2, "uniform", "equal", "cpu")
    frame = frame_of(q, k, v, m, 4.0)
    packed = kind(Packing(k, v, m, frame, Masses.EQUAL, shifted, torch.float32))
    sums, shift = packed.sums(q)
    assert sums.shape[1:] == (3, 13) and sums.dtype == torch.float32
    assert (shift is not None) == shifted
    scores = frame.scale * q @ (k - k.mean(dim=0)).T
    used = torch.zeros(13) if shift is None else shift
    weights = torch.exp2(scores - used[:, None])
    torch.testing.assert_close(sums[:, -1].sum(dim=0).double(), weights.sum(dim=1), rtol=2e-5, atol=0)
    if shift is not None:
        given = packed.maximum(q)
        assert bool((scores.amax(dim=1) <= given + 1e-4).all()) and bool((given <= shift).all())
        assert torch.equal(shift, shift.ceil()) and torch.equal(given, given.ceil())
        assert packed.sums(q, given)[1] is given


def test_a_packing_is_frozen() -> None:
    x = torch.zeros(2, 2)
    packing = Packing(x, x, x[0], None, Masses.EQUAL, False, torch.float32)
    with pytest.raises(FrozenInstanceError):
        packing.shifted = True
