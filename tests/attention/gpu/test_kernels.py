"""The named CUDA kernels against the dense float64 reference; without a CUDA device what must work everywhere."""

from __future__ import annotations

import pytest
import torch

from attention.gpu.problems import check, cuda, masses, problem, unit
from metastable.attention import KERNELS, attend
from metastable.attention.direct.dense import attend_dense
from metastable.attention.gpu.kernels import (
    attend_batch,
    attend_flash,
    attend_gpu_float64,
    attend_in_precision,
    attend_triton,
)
from metastable.attention.kernel import CUDA
from metastable.attention.operands import Operands
from metastable.errors import InvalidInput


@cuda
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (5, 1), (1, 100_003), (100_003, 9), (4097, 4095), (128, 256)])
def test_sizes_that_fill_no_block(shape: tuple[int, int]) -> None:
    for d in (2, 3, 24, 160):
        case = problem(3, *shape, d, None, "uniform", "zeros")
        check(attend_triton(Operands(*case, 3.0)), case, 3.0, 1e-5)
        check(attend_gpu_float64(Operands(*case, 3.0)), case, 3.0, 1e-13)


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
        exact = attend_dense(Operands(q, k, k if values is None else values, equal if mass is None else mass, 3.0))
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
    exact = attend_gpu_float64(Operands(x[:50], x, x, torch.full_like(x[:, 0], 1.0 / len(x)), 9.0))
    assert float((found.mean[:50] - exact[0]).abs().max()) <= 1e-9
    assert float((found.log_partition[:50] - exact[1]).abs().max()) <= 1e-9
    assert attend(x[:100], x, beta=9.0, rtol=1e-9).kernel == "gpu_float64"
    assert attend(x[:100_000], x, beta=1000.0, rtol=1e-9).kernel == "gpu_float64"


@cuda
def test_flash_is_half_precision_with_masses() -> None:
    for weight in ("equal", "zeros"):
        case = problem(5, 400, 900, 64, None, "uniform", weight)
        check(attend_flash(Operands(*case, 2.0)), case, 2.0, 2e-2)
    with pytest.raises(InvalidInput, match="up to 256"):
        attend_flash(Operands(*problem(0, 4, 4, 300, None, "uniform", "equal"), 1.0))


@cuda
def test_float32_in_float32_out() -> None:
    q, k, v, m = (x.float() for x in problem(2, 100, 200, 3, None, "uniform", "equal"))
    for name in ("triton", "gpu_float64", "flash_bf16", "flash_fp16"):
        found = KERNELS[name](Operands(q, k, v, m, 2.0))
        assert found.mean.dtype == found.log_partition.dtype == torch.float32, name


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
                expected = attend_dense(Operands(*(x.double().to(device) for x in inputs), float(beta[s])))
                tolerance = 1e-12 if dtype == torch.float64 else 1e-4
                torch.testing.assert_close(mean[s].double(), expected[0], rtol=0, atol=tolerance)
                torch.testing.assert_close(log_partition[s].double(), expected[1], rtol=tolerance, atol=tolerance)


def test_batch_refuses_shapes_that_do_not_match() -> None:
    x = torch.zeros(2, 3, 2)
    with pytest.raises(InvalidInput, match="do not match"):
        attend_batch(x, torch.zeros(2, 3, 4))
    with pytest.raises(InvalidInput, match="mass must have shape"):
        attend_batch(x, x, mass=torch.ones(2, 4))
    with pytest.raises(InvalidInput, match=r"\(b, n, d\)"):
        attend_batch(x[0], x)


@pytest.mark.skipif(torch.cuda.is_available(), reason="about machines without CUDA")
@pytest.mark.parametrize("name", sorted(name for name, kernel in KERNELS.items() if kernel.devices == CUDA))
def test_without_cuda_the_error_is_a_sentence(name: str) -> None:
    x = torch.eye(2, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="needs a CUDA device"):
        KERNELS[name](Operands(x, x, x, torch.ones(2, dtype=torch.float64), 1.0))


def test_private_interface_of_torch_still_has_flash_attention_with_a_log_partition() -> None:
    """aten._scaled_dot_product_flash_attention is private: an upgrade that changes it must fail here."""
    schema = torch.ops.aten._scaled_dot_product_flash_attention.default._schema
    names = [argument.name for argument in schema.arguments]
    assert names[:5] == ["query", "key", "value", "dropout_p", "is_causal"] and "scale" in names
    assert [returned.name for returned in schema.returns][:2] == ["output", "logsumexp"]


@pytest.mark.parametrize(("d", "d_v"), [(2, None), (3, 5), (24, None)])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_every_dimension_has_a_kernel_without_a_card(emulated, d, d_v, precision) -> None:
    case = problem(d, 20, 70, d, d_v, "uniform", "zeros", device="cpu")
    tolerance = 1e-5 if precision == torch.float32 else 1e-13
    check(attend_in_precision(Operands(*case, 3.0), precision), case, 3.0, tolerance)
