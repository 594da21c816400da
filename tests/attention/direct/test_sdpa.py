"""torch's flash attention as a kernel, and the private operator behind it."""

from __future__ import annotations

import pytest
import torch

from attention.attention_reference import LAYOUTS, check, check_many_blocks, masses, tokens
from metastable.attention import Operands
from metastable.attention.direct import SDPA


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("beta", [0.0, 1.0, 64.0, 3e3, 1e6])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_blocks_of_keys(dtype, beta, layout):
    check_many_blocks(SDPA, 20, dtype, beta, layout)


@pytest.mark.parametrize("equal", [True, False])
def test_masses_shift_the_log_partition_or_ride_in_a_column(equal):
    x = tokens(30, 5, "uniform", 0)
    mass = torch.full((30,), 0.2, dtype=torch.float64) if equal else masses(30, 1)
    values = torch.ones(30, 2, dtype=torch.float64) * torch.arange(30)[:, None]
    check(SDPA(Operands(x, x, values, mass, 3.0)), x, x, values, mass, 3.0)


def test_private_interface_of_torch_still_returns_the_log_partition():
    """aten._scaled_dot_product_flash_attention_for_cpu is private: an upgrade that changes it must fail here."""
    q, k, v = (torch.randn(1, 1, n, 8, generator=torch.Generator().manual_seed(n)).double() for n in (5, 9, 9))
    mean, log_partition = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, False, scale=2.0)
    scores = 2.0 * q[0, 0] @ k[0, 0].T
    torch.testing.assert_close(mean[0, 0], torch.softmax(scores, dim=1) @ v[0, 0])
    torch.testing.assert_close(log_partition.reshape(-1), torch.logsumexp(scores, dim=1))


def test_no_queries_have_no_attention():
    """The operator behind it divides by their number, which ends the process."""
    x = tokens(7, 5, "uniform", 0)
    found = SDPA(Operands(x[:0], x, x, torch.ones(7, dtype=torch.float64), 1.0))
    assert found.mean.shape == (0, 5) and found.log_partition.shape == (0,)
