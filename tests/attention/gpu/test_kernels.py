"""The named CUDA kernels against the dense float64 reference; without a CUDA device what must work everywhere."""

from __future__ import annotations

import math

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
    with pytest.raises(InvalidInput, match="one dimension"):
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


@pytest.mark.parametrize("d", [2, 3, 24])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_light_near_key_beats_heavy_far_ones_without_a_card(emulated, d, precision) -> None:
    _check_light_key(d, precision, "cpu")


@cuda
@pytest.mark.parametrize("d", [2, 3, 24, 160])
@pytest.mark.parametrize("precision", [torch.float32, torch.float64])
def test_a_light_near_key_beats_heavy_far_ones(d, precision) -> None:
    _check_light_key(d, precision, "cuda")


def _check_light_key(d: int, precision: torch.dtype, device: str) -> None:
    """Masses 1 and 1e-300 (1e-30) against weights e^500 and e^-500 (e^100 and e^-100), and a key of mass zero."""
    light, beta = (1e-30, 100.0) if precision == torch.float32 else (1e-300, 500.0)
    east = torch.zeros(1, d, dtype=torch.float64, device=device)
    east[0, 0] = 1.0
    for heavy in (1, 100):
        keys = torch.cat([east.repeat(heavy, 1), -east, -3 * east])
        mass = torch.ones(heavy + 2, dtype=torch.float64, device=device)
        mass[-2], mass[-1] = light, 0.0
        mean, log_partition = attend_in_precision(Operands(-east, keys, keys, mass, beta), precision)
        assert mean[0, 0].item() == pytest.approx(-1.0, abs=1e-5)
        assert log_partition[0].item() == pytest.approx(beta + math.log(light), rel=1e-5)


@cuda
@pytest.mark.parametrize("d", [2, 3, 16, 200])
@pytest.mark.parametrize("n_q", [1, 3, 5000])
def test_float32_states_the_rounding_of_its_sums(d: int, n_q: int) -> None:
    """A million equal keys: the mean is the key and Z = e^{|k|^2}, to the error that is stated."""
    key = unit(1, d, torch.Generator().manual_seed(d)).float().cuda()
    found = attend(key.repeat(n_q, 1), key.repeat(1_000_000, 1), beta=1.0, rtol=1e-3, kernel="triton")
    off = float((found.mean - key).double().norm(dim=1).max()) / float(key.double().norm())
    off_log = float((found.log_partition.double() - key.double().square().sum()).abs().max())
    assert found.error is not None and max(off, off_log) <= found.error


@cuda
def test_flash_refuses_masses_that_half_precision_cannot_hold() -> None:
    q, k, v, _ = problem(5, 40, 90, 64, None, "uniform", "equal")
    mass = torch.logspace(0, -20, 90, dtype=torch.float64, device="cuda")
    with pytest.raises(InvalidInput, match="masses whose ratios are up to 1000"):
        KERNELS["flash_fp16"](Operands(q, k, v, mass, 2.0))
    assert KERNELS["flash_bf16"](Operands(q, k, v, mass, 2.0)).error is not None


def test_a_batch_of_nonsense_is_refused() -> None:
    x = torch.eye(2, dtype=torch.float64).expand(3, 2, 2)
    for arguments in (
        {"queries": None}, {"keys": "x"}, {"values": 3}, {"mass": torch.zeros(3, 2)}, {"mass": [[1.0]]},
        {"beta": "1"}, {"beta": -1.0}, {"beta": torch.ones(2)}, {"beta": torch.tensor([1.0, -1.0, 2.0])},
        {"beta": [1.0, 2.0, 3.0]},
        {"queries": torch.zeros(3, 0, 2), "keys": torch.zeros(3, 0, 2)}, {"beta": None},
    ):  # fmt: skip
        with pytest.raises(InvalidInput) as refusal:
            attend_batch(**({"queries": x, "keys": x} | arguments))
        assert len(str(refusal.value)) < 200
