"""The kernel of batches: what it does where its guess of the shift fails."""

from __future__ import annotations

import pytest
import torch

from attention.gpu.problems import unit
from metastable.attention.direct.dense import attend_dense
from metastable.attention.gpu import batch, batch_kernels
from metastable.attention.gpu.batch import attend_batch_small
from metastable.attention.operands import Operands


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_guess_that_fails_is_replaced_by_the_maximum(
    emulated: None, monkeypatch: pytest.MonkeyPatch, sign: float
) -> None:
    """Keys beside the queries are met once; opposite ones lie 2 beta below the guess and are met a second time."""
    passes = []
    real = batch_kernels.add_keys
    monkeypatch.setattr(batch_kernels, "add_keys", lambda *given: passes.append(1) or real(*given))
    g = torch.Generator().manual_seed(0)
    pole = unit(1, 3, g)
    k = (pole + 1e-3 * unit(8, 3, g))[None].float()
    q = (sign * pole)[None].float().contiguous()
    mean, log_partition = attend_batch_small(q, k, k, None, 1e3)
    equal = torch.full((8,), 0.125, dtype=torch.float64)
    exact = attend_dense(Operands(q[0].double(), k[0].double(), k[0].double(), equal, 1e3))
    torch.testing.assert_close(mean[0].double(), exact[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(log_partition[0].double(), exact[1], rtol=1e-6, atol=0)
    assert len(passes) == (1 if sign > 0 else 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_per_lane_do_not_show(emulated: None, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype) -> None:
    x = unit(3 * 8, 2, torch.Generator().manual_seed(1)).reshape(3, 8, 2).to(dtype)
    found = []
    for share in (1, 2, 4):
        monkeypatch.setattr(batch, "rows_per_lane", lambda *_, share=share: share)
        found.append(attend_batch_small(x, x, x, None, 6.0))
    for other in found[1:]:
        assert torch.equal(found[0][0], other[0]) and torch.equal(found[0][1], other[1])
