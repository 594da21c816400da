"""Direct attention for d <= 8 against the dense reference, and which kernels compute it."""

from __future__ import annotations

import math

import pytest
import torch

from attention.gpu.problems import BETAS, CLOUDS, MASSES, check, cuda, problem, rounding_error, unit
from metastable.attention.gpu import TRITON, tensor_core_keys
from metastable.attention.gpu.frame import Frame, frame_of
from metastable.attention.gpu.kernels import attend_gpu_float64, attend_triton
from metastable.attention.gpu.packing import Masses
from metastable.attention.gpu.register_keys import RegisterKeys
from metastable.attention.gpu.small import additions_of_small, attend_small, fastest_kernels, packing_of
from metastable.attention.gpu.tensor_core_keys import TensorCoreKeys
from metastable.attention.operands import Operands


@cuda
@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("kind", CLOUDS)
@pytest.mark.parametrize("weight", MASSES)
def test_small_d_at_every_temperature(beta: float, kind: str, weight: str) -> None:
    for seed, (n_q, n_k, d, d_v) in enumerate([(700, 1500, 2, None), (1300, 333, 3, None), (65, 40, 5, 3)]):
        case = problem(seed, n_q, n_k, d, d_v, kind, weight)
        single = 2e-6 + rounding_error(case[0], case[1], beta, torch.float32)
        check(attend_triton(Operands(*case, beta)), case, beta, single)
        double = 1e-13 + rounding_error(case[0], case[1], beta, torch.float64)
        check(attend_gpu_float64(Operands(*case, beta)), case, beta, double)


@cuda
@pytest.mark.parametrize("d", [1, 4, 6, 7, 8])
@pytest.mark.parametrize("d_v", [None, 3])
def test_other_small_dimensions(d: int, d_v: int | None) -> None:
    case = problem(d, 257, 600, d, d_v, "uniform", "zeros")
    check(attend_triton(Operands(*case, 7.0)), case, 7.0, 4e-6)
    check(attend_gpu_float64(Operands(*case, 7.0)), case, 7.0, 1e-13)


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
    check(attend_triton(Operands(*case, beta)), case, beta, 1e-6)
    uneven = (q, k, k, torch.arange(1, keys + 1).double().cuda() / keys**2)
    check(attend_triton(Operands(*uneven, beta)), uneven, beta, 1e-6)


@cuda
def test_float32_error_does_not_grow_with_n() -> None:
    g = torch.Generator().manual_seed(0)
    k = unit(2_000_000, 2, g).float().double().cuda()
    case = (k[:64] * 1.0, k, k, torch.full((len(k),), 1.0 / len(k), dtype=torch.float64).cuda())
    check(attend_triton(Operands(*case, 1.0)), case, 1.0, 1e-6)


@pytest.mark.parametrize(
    ("beta", "weight"),
    [(0.0, "zeros"), (1.0, "equal"), (1.0, "wide"), (1e4, "equal"), (1e4, "zeros"), (1e4, "wide"), (1e8, "zeros")],
)
def test_small_d_without_a_card(emulated: None, beta: float, weight: str) -> None:
    """The same kernels on the CPU: registers and tensor cores, without a shift, with one, and again with maxima."""
    for n_q, n_k, d, d_v in ((50, 45, 2, None), (40, 70, 3, None), (33, 20, 5, 4), (20, 9, 8, None)):
        case = problem(d, n_q, n_k, d, d_v, "uniform", weight, "cpu")
        frame = frame_of(*case, beta)
        for precision, least in ((torch.float32, 2e-6), (torch.float64, 1e-13)):
            tolerance = least + rounding_error(case[0], case[1], beta, precision)
            check(attend_small(*case, frame, precision), case, beta, tolerance)


def test_sums_far_below_the_bound_are_found_and_computed_again(
    emulated: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two keys across the queries: every exponent is 0 and the bound 2e5 bits, so no first sum is above 0."""
    q = torch.tensor([[0.0, 0.0, 1.5]], dtype=torch.float64).repeat(3, 1)
    k = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    case = (q, k, k, torch.tensor([0.25, 0.75], dtype=torch.float64))
    frame = frame_of(*case, 1e5)
    for precision, kind in ((torch.float32, TensorCoreKeys), (torch.float64, RegisterKeys)):
        passes: list[int] = []
        real = kind.maximum
        monkeypatch.setattr(
            kind, "maximum", lambda *given, real=real, passes=passes: passes.append(1) or real(*given)
        )
        mean, log_partition = attend_small(*case, frame, precision)
        assert len(passes) == 1
        torch.testing.assert_close(mean, torch.tensor([[-0.5, 0.0, 0.0]] * 3).double(), rtol=0, atol=1e-6)
        torch.testing.assert_close(log_partition, torch.zeros(3).double(), rtol=0, atol=1e-6)


def frame_with(reach: float, equal: bool) -> Frame:
    return Frame(torch.zeros(8, dtype=torch.float64), equal, True, reach, 1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("d", "reach", "equal", "precision", "kernels"),
    [
        (2, 10.0, True, torch.float32, RegisterKeys),
        (3, 10.0, True, torch.float32, TensorCoreKeys),
        (2, 10.0, False, torch.float32, TensorCoreKeys),
        (3, 10.0, True, torch.float64, RegisterKeys),
        (3, 2.0**25, True, torch.float32, RegisterKeys),
    ],
)
def test_choice_of_kernels(
    d: int, reach: float, equal: bool, precision: torch.dtype, kernels: type[RegisterKeys | TensorCoreKeys]
) -> None:
    keys = torch.zeros(4, d)
    packing = packing_of(keys, keys, torch.ones(4), frame_with(reach, equal), precision)
    assert fastest_kernels(packing) is kernels


@pytest.mark.parametrize(("precision", "free"), [(torch.float32, 60.0), (torch.float64, 900.0)])
def test_exponents_are_shifted_where_they_could_overflow(precision: torch.dtype, free: float) -> None:
    keys = torch.zeros(4, 2)
    for reach, shifted in ((free, False), (1.01 * free, True), (math.inf, True), (math.nan, True)):
        packing = packing_of(keys, keys, torch.ones(4), frame_with(reach, True), precision)
        assert packing.shifted is shifted and packing.masses is Masses.EQUAL
    assert packing_of(keys, keys, torch.ones(4), frame_with(1.0, False), precision).masses is Masses.IN_VALUES


def test_additions_grow_with_chunks_and_not_with_all_keys() -> None:
    """Many keys for few rows are many chunks, added in float64; on tensor cores flushes do not count."""
    few, many = additions_of_small(1, 10**6, 2, 2, 132), additions_of_small(10**6, 10**6, 2, 2, 132)
    assert 256 <= few < 300 < many <= 256 + 10**6 / 256
    assert additions_of_small(5, 10, 2, 2, 132) < 300
    assert additions_of_small(10**6, 10**6, 3, 3, 132) == additions_of_small(10, 10, 8, 3, 132) < 150
    # With more columns chunks are short, as long as their sums fit 4 GiB.
    assert (
        additions_of_small(10**6, 10**6, 8, 8, 132)
        <= 2 * (64 + 16384 / 64)
        < additions_of_small(10**7, 10**7, 8, 8, 132)
    )


@cuda
def test_the_flushes_of_tensor_cores_are_compensated(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 million keys of two weights, in one chunk: every flush adds the same number and rounds to one side."""
    monkeypatch.setattr(tensor_core_keys, "multiprocessors", lambda device: 1)
    n_k, beta = 4_000_000, 1.7
    k = torch.zeros(n_k, 3, dtype=torch.float64, device="cuda")
    k[::2, 2], k[1::2, 2] = 0.8, 0.2
    q = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64, device="cuda").repeat(12_288, 1)
    m = torch.full((n_k,), 1.0 / n_k, dtype=torch.float64, device="cuda")
    operands = Operands(q, k, k, m, beta)
    mean, log_z = attend_triton(operands)
    assert TRITON.rounding(operands) < 3e-5
    high, low = math.exp(0.8 * beta), math.exp(0.2 * beta)
    assert float((log_z - math.log((high + low) / 2)).abs().max()) < 3e-6
    assert float((mean[:, 2] - (0.8 * high + 0.2 * low) / (high + low)).abs().max()) < 3e-6
