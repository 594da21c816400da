"""What weights promise of all calls of attention in a run."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import metastable as ms
from attention.gpu.problems import cuda
from metastable.attention.gpu import GPU_FLOAT64, TRITON
from metastable.attention.operands import Operands
from metastable.attention.select import KERNELS
from metastable.flows.launched import promise_of, promised


def weights(d: int, h: int | None, seed: int) -> ms.AttentionWeights:
    rng = np.random.default_rng(seed)
    if h is None:
        return ms.AttentionWeights(V=rng.standard_normal((d, d)), B=rng.standard_normal((d, d)))
    Q, K, V = (rng.standard_normal((h, d)) for _ in range(3))
    return ms.AttentionWeights.from_qkv(Q, K, V, rng.standard_normal((d, h)))


def operands(w: ms.AttentionWeights, x: torch.Tensor, mass: torch.Tensor, beta: float) -> Operands:
    return Operands(w.queries(x), w.keys(x), w.values(x), mass, beta)


@pytest.mark.parametrize(("d", "h"), [(2, None), (5, None), (12, 4)])
def test_the_bounds_hold_for_every_configuration(d, h):
    """From random tokens to all of them at the worst direction and its antipode."""
    w = weights(d, h, seed=d)
    mass = torch.rand(40, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
    start = ms.sphere.uniform(40, d, seed=1)
    promise = promise_of(w, operands(w, start, mass, 2.0))
    worst = torch.linalg.svd(w.dense_B.T if h is None else w.query).Vh[0]
    two = torch.where(torch.arange(40)[:, None] < 20, worst, -worst)
    for x in (start, ms.sphere.uniform(40, d, seed=7), two):
        seen = operands(w, x, mass, 2.0)
        assert float(seen.queries.norm(dim=1).max()) <= promise.length
        assert float((seen.keys - seen.keys.mean(0)).norm(dim=1).max()) <= promise.radius
        assert float((seen.values - seen.values.mean(0)).norm(dim=1).max()) <= promise.value_radius
    assert not promise.equal
    assert promise.mass_bits == pytest.approx(math.log2(float(mass.max() / mass.min())))
    assert promise_of(w, operands(w, start, torch.full((40,), 0.025).double(), 2.0)).equal


def test_a_promise_is_made_where_the_kernel_needs_no_more():
    w, mass = weights(3, None, 0), torch.full((40,), 0.025, dtype=torch.float64)
    x = ms.sphere.uniform(40, 3, seed=1)
    assert promised(GPU_FLOAT64, operands(w, x, mass, 2.0), w, None) is not None
    assert promised(GPU_FLOAT64, operands(w, x, mass, 1e4), w, None) is None  # exponents beyond the range
    assert promised(KERNELS["fused"], operands(w, x, mass, 2.0), w, None) is None
    assert promised(TRITON, operands(w, x, mass, 2.0), w, 1e-3) is not None
    assert promised(TRITON, operands(w, x, mass, 2.0), w, 1e-8) is None  # float32 may round away more
    assert promised(TRITON, operands(w, x, mass, 2.0), w, None) is None
    high = weights(12, None, 0)
    y = ms.sphere.uniform(40, 12, seed=1)
    assert promised(GPU_FLOAT64, operands(high, y, mass, 1e4), high, None) is not None  # no row is computed again


@cuda
@pytest.mark.parametrize(("d", "h", "beta"), [(2, None, 8.0), (3, None, 60.0), (5, None, 1.0), (64, 16, 4.0)])
def test_the_launched_field_is_the_field(d, h, beta):
    flow, rho = (
        ms.SelfAttention(weights(d, h, d), beta),
        ms.Measure(ms.sphere.uniform(500, d, seed=1)).to(device="cuda"),
    )
    field = flow.launched(rho.points, rho.mass)
    assert field is not None
    other = ms.sphere.uniform(500, d, seed=2).cuda()
    expected = flow.evaluate(0.0, other, rho.mass, unit=True).vector
    torch.testing.assert_close(field(other), expected, rtol=0, atol=1e-11)
