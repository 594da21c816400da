"""Many small systems at once."""

from __future__ import annotations

import pytest
import torch

from attention.gpu.problems import cuda, unit
from metastable.attention.direct.dense import attend_dense
from metastable.attention.gpu.batch import BUSY, REGISTERS, attend_batch_small, keys_at_once, rows_per_lane
from metastable.attention.gpu.kernels import attend_batch
from metastable.attention.operands import Operands


@cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [2, 3, 8])
def test_batch_far_below_the_bound(dtype: torch.dtype, d: int) -> None:
    """In half of the systems all keys are opposite to the queries: their sums vanish beside the bound."""
    g = torch.Generator().manual_seed(d)
    for n_k in (1, 7, 32, 48):
        pole = unit(6, d, g)[:, None]
        k = pole + 1e-3 * torch.randn(6, n_k, d, dtype=torch.float64, generator=g)
        q = pole * torch.tensor([1.0, -1.0]).repeat(3)[:, None, None].expand(6, 12, 1)
        q, k = (x.to(dtype).double().cuda() for x in (q, k))
        m = 10.0 ** (-30 * torch.rand(6, n_k, dtype=torch.float64, generator=g)).cuda()
        for mass in (None, m):
            mean, log_partition = attend_batch(
                q.to(dtype), k.to(dtype), None, None if mass is None else mass.to(dtype), 1e4
            )
            assert bool(torch.isfinite(mean).all())
            for s in range(6):
                row_mass = torch.full((n_k,), 1.0 / n_k, dtype=torch.float64).cuda() if mass is None else mass[s]
                if dtype == torch.float32:
                    row_mass = row_mass.float().double()
                exact = attend_dense(Operands(q[s], k[s], k[s], row_mass, 1e4))
                # Scores of 1e4 carry eps 1e4, and the keys are 1e-3 apart.
                off = 1e-4 if dtype == torch.float32 else 1e-11
                torch.testing.assert_close(mean[s].double(), exact[0], rtol=0, atol=off)
                torch.testing.assert_close(log_partition[s].double(), exact[1], rtol=off, atol=off)


@cuda
def test_batch_of_many_rows_per_lane() -> None:
    """So many systems that every lane takes four rows, and a size that fills no program."""
    g = torch.Generator().manual_seed(3)
    x = unit(20_011 * 32, 2, g).reshape(20_011, 32, 2).cuda()
    mean, log_partition = attend_batch(x.float(), x.float(), beta=4.0)
    for s in (0, 1, 7777, 20_010):
        y = x[s].float().double()
        exact = attend_dense(Operands(y, y, y, torch.full((32,), 1 / 32, dtype=torch.float64).cuda(), 4.0))
        torch.testing.assert_close(mean[s].double(), exact[0], rtol=0, atol=4e-6)
        torch.testing.assert_close(log_partition[s].double(), exact[1], rtol=0, atol=4e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_batch_without_a_card(emulated: None, dtype: torch.dtype, weighted: bool) -> None:
    """Systems of sizes that fill no program, one beta for all and one each, values of their own."""
    g = torch.Generator().manual_seed(5)
    tolerance = 2e-5 if dtype == torch.float32 else 1e-12
    for b, n_q, n_k, d, d_v in ((5, 4, 16, 2, None), (7, 3, 6, 3, 2), (2, 5, 7, 8, None)):
        q = unit(b * n_q, d, g).reshape(b, n_q, d).to(dtype)
        k = unit(b * n_k, d, g).reshape(b, n_k, d).to(dtype)
        v = k if d_v is None else torch.randn(b, n_k, d_v, generator=g).to(dtype)
        m = torch.rand(b, n_k, generator=g).to(dtype) if weighted else None
        for beta in (3.0, torch.linspace(0.0, 40.0, b, dtype=dtype)):
            mean, log_partition = attend_batch_small(q, k, v, m, beta)
            for s in range(b):
                mass = torch.full((n_k,), 1.0 / n_k, dtype=torch.float64) if m is None else m[s].double()
                one = float(beta[s]) if isinstance(beta, torch.Tensor) else beta
                exact = attend_dense(Operands(q[s].double(), k[s].double(), v[s].double(), mass, one))
                torch.testing.assert_close(mean[s].double(), exact[0], rtol=0, atol=tolerance)
                torch.testing.assert_close(log_partition[s].double(), exact[1], rtol=tolerance, atol=tolerance)


def test_keys_at_once_divide_the_keys_and_fit() -> None:
    for n_k in range(1, 100):
        for widest in range(1, 9):
            group = keys_at_once(n_k, widest)
            assert n_k % group == 0 and group <= 16
            assert group == 1 or group * widest <= REGISTERS


def test_rows_per_lane_divide_the_rows_and_leave_the_card_busy() -> None:
    for n_q in (1, 2, 4, 6, 32):
        for systems in (1, 1000, 100_000):
            share = rows_per_lane(systems * n_q, n_q, 132)
            assert n_q % share == 0
            assert share == 1 or systems * n_q // share >= BUSY * 132
    assert rows_per_lane(4 * BUSY * 132, 32, 132) == 4
    assert rows_per_lane(4 * BUSY * 132 - 32, 32, 132) == 2
