"""The CUDA kernels against the dense float64 reference; without a CUDA device only what must work everywhere."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from metastable.attention import attend
from metastable.attention.direct.dense import attend_dense
from metastable.attention.gpu.half_split import split
from metastable.attention.gpu.kernels import (
    GPU_KERNELS,
    attend_batch,
    attend_circle,
    attend_flash,
    attend_gpu_float64,
    attend_triton,
    gpu_available,
    rounding_error,
)
from metastable.errors import InvalidInput

cuda = pytest.mark.skipif(not gpu_available(), reason="needs a CUDA device and Triton")
BETAS = [0.0, 1.0, 256.0, 1e4, 1e6]
CLOUDS = ["uniform", "clustered", "antipodal", "duplicates", "line"]
MASSES = ["equal", "zeros", "wide"]


def unit(n: int, d: int, generator: torch.Generator) -> Tensor:
    x = torch.randn(n, d, dtype=torch.float64, generator=generator)
    return x / x.norm(dim=1, keepdim=True)


def cloud(kind: str, n: int, d: int, generator: torch.Generator) -> Tensor:
    x = unit(n, d, generator)
    pole = unit(1, d, generator)
    if kind == "clustered":
        x = pole + 1e-3 * x
    elif kind == "antipodal":
        x = torch.where(torch.arange(n)[:, None] % 2 == 0, pole, -pole) + 1e-2 * x
    elif kind == "duplicates":
        x = x[torch.arange(n) % max(1, n // 5)]
    elif kind == "line":
        x = 3.0 * x * torch.rand(n, 1, dtype=torch.float64, generator=generator)
    return x if kind == "line" else x / x.norm(dim=1, keepdim=True)


def masses(kind: str, n: int, generator: torch.Generator) -> Tensor:
    m = torch.rand(n, dtype=torch.float64, generator=generator)
    if kind == "equal":
        return torch.full((n,), 1.0 / n, dtype=torch.float64)
    if kind == "zeros" and n > 2:
        m[torch.arange(n) % 3 == 1] = 0.0
    if kind == "wide":
        m = 10.0 ** (-60 * m)
    return m / m.sum()


def problem(seed: int, n_q: int, n_k: int, d: int, d_v: int | None, kind: str, weight: str) -> tuple[Tensor, ...]:
    """Float32 numbers in float64 on the device, so that float32 kernels and the reference see the same input."""
    g = torch.Generator().manual_seed(seed)
    k = cloud(kind, n_k, d, g).float()
    q = cloud("uniform", n_q, d, g).float() @ (torch.eye(d) + 0.3 * torch.randn(d, d, generator=g) / math.sqrt(d))
    v = k if d_v is None else torch.randn(n_k, d_v, generator=g)
    m = masses(weight, n_k, g)
    q, k64 = q.double().cuda(), k.double().cuda()
    return q, k64, k64 if d_v is None else v.double().cuda(), m.cuda()


def check(got: tuple[Tensor, Tensor], case: tuple[Tensor, ...], beta: float, tolerance: float) -> None:
    q, k, v, m = case
    mean, log_partition = attend_dense(q, k, v, m, beta)
    assert got[0].shape == mean.shape and got[1].shape == log_partition.shape
    assert got[0].dtype == q.dtype and got[0].is_cuda
    radius = float((v - v.mean(dim=0)).norm(dim=1).max())
    # The reference rounds, too, and does not centre: its scores are off by eps beta |q| |k|.
    reach = beta * float(q.norm(dim=1).max() * k.norm(dim=1).max())
    reference = 2.0**-52 * (k.shape[1] + 4) * (1 + reach)
    allowed = (tolerance + reference) * radius + 2.0**-46 * float(v.abs().max())
    error = float((got[0].double() - mean).norm(dim=1).max())
    assert error <= allowed, f"mean off by {error:.2e}, allowed {allowed:.2e}"
    slack = (tolerance + reference) * (1 + log_partition.abs())
    assert bool(((got[1].double() - log_partition).abs() <= slack).all())


@cuda
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize("weight", MASSES)
def test_small_d_at_every_temperature(beta: float, kind: str, weight: str) -> None:
    for seed, (n_q, n_k, d, d_v) in enumerate([(700, 1500, 2, None), (1300, 333, 3, None), (65, 40, 5, 3)]):
        case = problem(seed, n_q, n_k, d, d_v, kind, weight)
        single = 2e-6 + rounding_error(case[0], case[1], beta, torch.float32)
        check(attend_triton(*case, beta), case, beta, single)
        double = 1e-13 + rounding_error(case[0], case[1], beta, torch.float64)
        check(attend_gpu_float64(*case, beta), case, beta, double)


@cuda
@pytest.mark.parametrize("d", [1, 4, 6, 7, 8])
@pytest.mark.parametrize("d_v", [None, 3])
def test_other_small_dimensions(d: int, d_v: int | None) -> None:
    case = problem(d, 257, 600, d, d_v, "uniform", "zeros")
    check(attend_triton(*case, 7.0), case, 7.0, 4e-6)
    check(attend_gpu_float64(*case, 7.0), case, 7.0, 1e-13)


@cuda
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (1, 100_003), (100_003, 9), (4097, 4095), (128, 256)])
def test_sizes_that_fill_no_block(shape: tuple[int, int]) -> None:
    for d in (2, 3, 24, 160):
        case = problem(3, *shape, d, None, "uniform", "zeros")
        check(attend_triton(*case, 3.0), case, 3.0, 1e-5)
        check(attend_gpu_float64(*case, 3.0), case, 3.0, 1e-13)


@cuda
@pytest.mark.parametrize("bits", [4, 12, 20])
@pytest.mark.parametrize("keys", [4, 2000])
def test_exact_scores_stay_exact_at_huge_beta(bits: int, keys: int) -> None:
    """Dyadic points, symmetric keys (centre zero) and beta log2(e) = 2^bits: float32 scores carry no rounding.

    What remains is the shift: few keys leave most rows far below the Cauchy-Schwarz bound.
    """
    g = torch.Generator().manual_seed(bits)
    half = torch.randint(-63, 64, (keys // 2, 3), generator=g).double() / 64
    k = torch.cat([half, -half]).cuda()
    q = (torch.randint(-63, 64, (500, 3), generator=g).double() / 64).cuda()
    m = torch.full((keys,), 1.0 / keys, dtype=torch.float64).cuda()
    beta = 2.0**bits * math.log(2)
    case = (q, k, k, m)
    check(attend_triton(*case, beta), case, beta, 1e-6)
    uneven = (q, k, k, torch.arange(1, keys + 1).double().cuda() / keys**2)
    check(attend_triton(*uneven, beta), uneven, beta, 1e-6)


@cuda
def test_float32_error_does_not_grow_with_n() -> None:
    g = torch.Generator().manual_seed(0)
    k = unit(2_000_000, 2, g).float().double().cuda()
    case = (k[:64] * 1.0, k, k, torch.full((len(k),), 1.0 / len(k), dtype=torch.float64).cuda())
    check(attend_triton(*case, 1.0), case, 1.0, 1e-6)


@cuda
@pytest.mark.parametrize("d", [9, 40, 128, 200, 768])
@pytest.mark.parametrize("beta", BETAS)
def test_large_d(d: int, beta: float) -> None:
    for kind in CLOUDS:
        for weight in MASSES:
            case = problem(d, 300, 700, d, None, kind, weight)
            reach = beta * float(case[0].norm(dim=1).max() * (case[1] - case[1].mean(dim=0)).norm(dim=1).max())
            check(attend_triton(*case, beta), case, beta, 5e-6 + 2.0**-20 * reach)
            check(attend_gpu_float64(*case, beta), case, beta, 1e-13 + 2.0**-47 * reach)
    other = problem(d, 130, 300, d, 24, "uniform", "zeros")
    check(attend_triton(*other, 2.0), other, 2.0, 1e-5)


@cuda
def test_large_d_error_over_many_keys() -> None:
    """The truncating accumulation of tensor cores must not show: positive values, 100 000 keys."""
    for d in (64, 192):
        case = problem(1, 64, 100_000, d, None, "uniform", "equal")
        values = case[2].abs() + 1.0
        shifted = (case[0], case[1], values, case[3])
        check(attend_triton(*shifted, 4.0), shifted, 4.0, 1e-5)
        check(attend_triton(*case, 4.0), case, 4.0, 1e-5)


@cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("d", [2, 3, 24])
def test_auto_chooses_the_gpu_kernels(dtype: torch.dtype, d: int) -> None:
    """`attend` on CUDA tensors, shapes that end inside blocks, with and without masses and values of their own."""
    q, k, v, m = problem(d, 301, 777, d, 5, "uniform", "zeros")
    single = dtype == torch.float32
    for mass, values in ((None, None), (m, None), (None, v), (m, v)):
        chosen = attend(
            q.to(dtype), k.to(dtype), None if mass is None else mass.to(dtype), 3.0,
            values=None if values is None else values.to(dtype),
        )  # fmt: skip
        assert chosen.kernel == ("triton" if single else "gpu_float64") and chosen.error is None
        assert chosen.mean.is_cuda and chosen.mean.dtype == chosen.log_partition.dtype == dtype
        equal = torch.full_like(m, 1.0 / len(m))
        exact = attend_dense(q, k, k if values is None else values, equal if mass is None else mass, 3.0)
        tolerance = 1e-5 if single else 1e-12
        torch.testing.assert_close(chosen.mean.double(), exact[0], rtol=0, atol=tolerance)
        torch.testing.assert_close(chosen.log_partition.double(), exact[1], rtol=0, atol=tolerance)


@cuda
def test_auto_chooses_cells_of_the_circle_for_a_tolerance() -> None:
    """Where the pairs are many, with the error it states; a sharp softmax or S^2 goes over all pairs."""
    g = torch.Generator().manual_seed(11)
    x = unit(150_000, 2, g).cuda()
    found = attend(x[:100_000], x, beta=9.0, rtol=1e-9)
    assert found.kernel == "circle_gpu" and found.error is not None and found.error <= 1e-9
    exact = attend_gpu_float64(x[:50], x, x, torch.full_like(x[:, 0], 1.0 / len(x)), 9.0)
    assert float((found.mean[:50] - exact[0]).abs().max()) <= 1e-9
    assert float((found.log_partition[:50] - exact[1]).abs().max()) <= 1e-9
    assert attend(x[:100], x, beta=9.0, rtol=1e-9).kernel == "gpu_float64"
    assert attend(x[:100_000], x, beta=1000.0, rtol=1e-9).kernel == "gpu_float64"


@cuda
@pytest.mark.parametrize("beta", [0.0, 0.5, 8.0, 200.0])
@pytest.mark.parametrize("kind", ["uniform", "clustered", "antipodal", "duplicates"])
def test_circle_cells(beta: float, kind: str) -> None:
    for seed, weight in enumerate(("equal", "zeros")):
        g = torch.Generator().manual_seed(seed)
        k = cloud(kind, 5000, 2, g).cuda()
        q = cloud("uniform", 700, 2, g).cuda() @ torch.tensor([[1.0, 0.3], [-0.2, 0.7]], dtype=torch.float64).cuda()
        m = masses(weight, 5000, g).cuda()
        mean, log_partition = attend_circle(q, k, k, m, beta)
        exact = attend_dense(q, k, k, m, beta)
        assert float((mean - exact[0]).abs().max()) <= 1e-10
        assert float((log_partition - exact[1]).abs().max()) <= 1e-10


@cuda
def test_circle_cells_refuse_what_they_cannot() -> None:
    x = unit(10, 2, torch.Generator().manual_seed(0)).cuda()
    m = torch.full((10,), 0.1, dtype=torch.float64).cuda()
    double = 2 * x
    with pytest.raises(InvalidInput, match="length one"):
        attend_circle(x, double, double, m, 1.0)
    with pytest.raises(InvalidInput, match="that are the values"):
        attend_circle(x, x, x.clone(), m, 1.0)
    with pytest.raises(InvalidInput, match="311"):
        attend_circle(x, x, x, m, 1000.0)


@cuda
def test_flash_is_half_precision_with_masses() -> None:
    for weight in ("equal", "zeros"):
        case = problem(5, 400, 900, 64, None, "uniform", weight)
        check(attend_flash(*case, 2.0), case, 2.0, 2e-2)
    with pytest.raises(InvalidInput, match="up to 256"):
        attend_flash(*problem(0, 4, 4, 300, None, "uniform", "equal"), 1.0)


@cuda
def test_float32_in_float32_out() -> None:
    q, k, v, m = (x.float() for x in problem(2, 100, 200, 3, None, "uniform", "equal"))
    for name in ("triton", "gpu_float64", "flash_bf16", "flash_fp16"):
        mean, log_partition = GPU_KERNELS[name](q, k, v, m, 2.0)
        assert mean.dtype == log_partition.dtype == torch.float32, name


@cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batch_on_the_gpu(dtype: torch.dtype) -> None:
    _check_batch(dtype, "cuda")


def test_batch_on_the_cpu() -> None:
    _check_batch(torch.float64, "cpu")


def _check_batch(dtype: torch.dtype, device: str) -> None:
    g = torch.Generator().manual_seed(7)
    for b, n_q, n_k, d, d_v in [(50, 32, 32, 2, None), (7, 5, 33, 3, 4), (3, 20, 10, 12, None)]:
        q = unit(b * n_q, d, g).reshape(b, n_q, d).to(device, dtype)
        k = unit(b * n_k, d, g).reshape(b, n_k, d).to(device, dtype)
        v = None if d_v is None else torch.randn(b, n_k, d_v, generator=g).to(device, dtype)
        m = masses("zeros", b * n_k, g).reshape(b, n_k).to(device, dtype)
        beta = torch.linspace(0.0, 60.0, b).to(device, dtype)
        for mass in (None, m):
            mean, log_partition = attend_batch(q, k, v, mass, beta)
            for s in range(0, b, 2):
                row_mass = torch.full((n_k,), 1.0 / n_k, dtype=torch.float64) if mass is None else mass[s]
                inputs = (q[s], k[s], k[s] if v is None else v[s], row_mass)
                expected = attend_dense(*(x.double().to(device) for x in inputs), float(beta[s]))
                tolerance = 1e-12 if dtype == torch.float64 else 1e-4
                torch.testing.assert_close(mean[s].double(), expected[0], rtol=0, atol=tolerance)
                torch.testing.assert_close(log_partition[s].double(), expected[1], rtol=tolerance, atol=tolerance)


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
                exact = attend_dense(q[s], k[s], k[s], row_mass, 1e4)
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
        exact = attend_dense(y, y, y, torch.full((32,), 1 / 32, dtype=torch.float64).cuda(), 4.0)
        torch.testing.assert_close(mean[s].double(), exact[0], rtol=0, atol=4e-6)
        torch.testing.assert_close(log_partition[s].double(), exact[1], rtol=0, atol=4e-6)


def test_batch_refuses_shapes_that_do_not_match() -> None:
    x = torch.zeros(2, 3, 2)
    with pytest.raises(InvalidInput, match="do not match"):
        attend_batch(x, torch.zeros(2, 3, 4))
    with pytest.raises(InvalidInput, match="mass must have shape"):
        attend_batch(x, x, mass=torch.ones(2, 4))
    with pytest.raises(InvalidInput, match=r"\(b, n, d\)"):
        attend_batch(x[0], x)


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without CUDA")
@pytest.mark.parametrize("name", sorted(GPU_KERNELS))
def test_without_cuda_the_error_is_a_sentence(name: str) -> None:
    x = torch.eye(2, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="needs a CUDA device"):
        GPU_KERNELS[name](x, x, x, torch.ones(2, dtype=torch.float64), 1.0)


@cuda
def test_half_pairs_hold_22_bits() -> None:
    """hi + lo reproduces every entry to 2^-22 of its size, down to 2^-33 of the largest."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(500, 30, generator=g).double().cuda()
    x[:, :5] *= 1e-6
    centre = x.mean(dim=0)
    size = float((x - centre).norm(dim=1).max())
    hi, lo, unit = split(x, centre, size, 48)
    assert hi.shape == lo.shape == (500, 48) and hi.dtype == torch.float16
    back = (hi.double() + lo.double()) * unit
    wrong = (back[:, :30] - (x - centre)).abs()
    assert bool((wrong <= 2.0**-22 * (x - centre).abs() + 2.0**-33 * size).all())
    assert not bool(back[:, 30:].any())
