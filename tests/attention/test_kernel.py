"""Every kernel of the CPU against the dense formula in extended precision; what kernels declare is true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention.attention_reference import LAYOUTS, check, conditioning, masses, tokens
from metastable.attention import KERNELS, Operands, attend
from metastable.attention.kernel import Kernel
from metastable.errors import InvalidInput

CPU_KERNELS = ("dense", "fused", "blocks", "sdpa")
BETAS = (0.0, 1e-3, 1.0, 1e4, 1e6)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kernel", CPU_KERNELS)
@given(
    n_q=st.integers(1, 40),
    n_k=st.integers(1, 60),
    d=st.sampled_from([2, 3, 5]),
    d_v=st.sampled_from([0, 1, 2, 7]),
    beta=st.sampled_from(BETAS),
    layout=st.sampled_from(LAYOUTS),
    rotate=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_kernels_agree_with_the_dense_formula(kernel, dtype, n_q, n_k, d, d_v, beta, layout, rotate, seed):
    keys = tokens(n_k, d, layout, seed).to(dtype)
    queries = tokens(n_q, d, layout, seed + 1).to(dtype)
    if rotate:
        queries = queries @ torch.from_numpy(np.random.default_rng(seed).normal(size=(d, d))).to(dtype)
    values = keys if d_v == 0 else torch.from_numpy(np.random.default_rng(seed).normal(size=(n_k, d_v))).to(dtype)
    mass = masses(n_k, seed).to(dtype)
    result = attend(queries, keys, mass, beta, values=values, kernel=kernel)
    assert result.mean.dtype == dtype
    check(result, queries, keys, values, mass, beta)


@pytest.mark.parametrize("kernel", CPU_KERNELS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_best_key_far_away(kernel, dtype):
    """All keys opposite to the query: weights at the Cauchy-Schwarz shift would all underflow."""
    angle = torch.linspace(-0.3, 0.3, 1500, dtype=torch.float64)
    keys = torch.stack([-angle.cos(), angle.sin()], dim=1).to(dtype)
    queries = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 0.0]], dtype=dtype)
    for beta in (50.0, 1e3, 1e5):
        result = attend(queries, keys, beta=beta, kernel=kernel)
        mass = torch.full((1500,), 1 / 1500, dtype=dtype)
        check(result, queries, keys, keys, mass, beta)


@pytest.mark.parametrize("kernel", ["auto", *CPU_KERNELS])
def test_reference_case_on_the_circle(kernel):
    """R2: 256 equispaced tokens, beta = 20, B = [[1, .5], [-.3, .8]], seen from (.6, .8)."""
    angle = 2 * np.pi * (np.arange(256) + 0.5) / 256
    keys = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    query = np.array([[0.6, 0.8]]) @ np.array([[1.0, 0.5], [-0.3, 0.8]])
    mean = attend(query, keys, beta=20.0, kernel=kernel).mean[0]
    np.testing.assert_allclose(mean, [0.3486482548912691, 0.9103593322160917], rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", CPU_KERNELS)
def test_two_poles_closed_form(kernel):
    """m = tanh(beta) and Z = cosh(beta) for masses 1/2 at +-e_1."""
    keys = [[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]]
    for beta in (0.0, 0.1, 1.0, 30.0, 800.0):
        result = attend([[1.0, 0.0, 0.0]], keys, beta=beta, kernel=kernel)
        np.testing.assert_allclose(result.mean[0], [np.tanh(beta), 0, 0], atol=1e-15)
        np.testing.assert_allclose(
            result.log_partition[0], np.logaddexp(beta, -beta) - np.log(2), rtol=1e-15, atol=4e-16
        )


@pytest.mark.parametrize("kernel", CPU_KERNELS)
def test_zero_beta_is_the_mean(kernel):
    x, m = tokens(500, 4, "uniform", 0), masses(500, 0)
    result = attend(x, x, m, 0.0, kernel=kernel)
    np.testing.assert_allclose(result.mean, ((m @ x) / m.sum()).expand(500, 4), atol=1e-14)
    np.testing.assert_allclose(result.log_partition, np.full(500, float(torch.log(m.sum()))), atol=1e-14)


@pytest.mark.parametrize("kernel", CPU_KERNELS)
@given(seed=st.integers(0, 1000), beta=st.sampled_from([0.5, 20.0, 5e3]))
def test_splitting_a_mass_changes_nothing(kernel, seed, beta):
    x, m = tokens(30, 3, "uniform", seed), masses(30, seed)
    whole = attend(x, x, m, beta, kernel=kernel)
    split = attend(x, torch.cat([x, x]), torch.cat([0.25 * m, 0.75 * m]), beta, kernel=kernel)
    np.testing.assert_allclose(split.mean, whole.mean, atol=1e-12 + 8 * conditioning(x, x, beta, torch.float64))
    np.testing.assert_allclose(split.log_partition, whole.log_partition, rtol=1e-12, atol=1e-12)


def test_inputs_of_any_layout():
    """Transposed and strided tensors give the answer of their contiguous copies."""
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 400)))
    for kernel in CPU_KERNELS:
        a = attend(x.T, x.T[::2], beta=1.3, kernel=kernel)
        b = attend(x.T.contiguous(), x.T[::2].contiguous(), beta=1.3, kernel=kernel)
        np.testing.assert_allclose(a.mean, b.mean, rtol=1e-13, atol=1e-13)


def operands(n=6, d=3, d_v=None, dtype=torch.float64, length=1.0):
    """Tokens that attend to each other, or to values of their own."""
    x = (length * tokens(n, d, "uniform", 0)).to(dtype)
    values = x if d_v is None else torch.ones(n, d_v, dtype=dtype)
    return Operands(x, x, values, torch.full((n,), 1 / n, dtype=dtype), 2.0)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("fused", operands(d=9)),
        ("fused", operands(d_v=9)),
        ("circle", operands(d=3)),
        ("circle", operands(d=2, d_v=2)),
        ("sphere", operands(d=2)),
        ("sphere", operands(d=3, d_v=3)),
        ("sphere", operands(d=3, length=2.0)),
        ("sphere", operands(d=3, dtype=torch.float32)),
        ("sphere_grid", operands(d=3, d_v=3)),
    ],
)
def test_what_a_kernel_cannot_is_declared_and_refused(name, wrong):
    assert not KERNELS[name].can(wrong, 1e-6)
    with pytest.raises(InvalidInput):
        KERNELS[name](wrong, 1e-6)


@pytest.mark.parametrize("name", ["dense", "fused", "blocks", "sdpa", "circle", "sphere", "sphere_grid"])
def test_what_a_kernel_can_is_declared_and_done(name):
    right = operands(d=KERNELS[name].dimension or 3)
    assert KERNELS[name].can(right, 1e-6)
    found, exact = KERNELS[name](right, 1e-6), KERNELS["dense"](right)
    assert found.kernel == name
    assert float((found.mean - exact.mean).norm(dim=1).max()) <= (found.error or 1e-14) <= 1e-6


@pytest.mark.parametrize("name", ["fused", "blocks", "sdpa", "circle"])
def test_other_devices_are_refused_in_a_sentence(name):
    x = torch.empty((4, 2), dtype=torch.float64, device="meta")
    elsewhere = Operands(x, x, x, torch.empty(4, dtype=torch.float64, device="meta"), 1.0)
    assert not KERNELS[name].devices or "meta" not in KERNELS[name].devices
    with pytest.raises(InvalidInput, match=f'kernel="{name}" runs on the CPU, got tensors on meta'):
        KERNELS[name](elsewhere)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_mask_that_no_kernel_knows_is_refused_by_all(name):
    masked = replace(operands(d=KERNELS[name].dimension or 3), mask="causal")
    assert not KERNELS[name].can(masked, 1e-6)
    with pytest.raises(InvalidInput, match=f"kernel=\"{name}\" knows no mask 'causal'"):
        KERNELS[name](masked)


def test_a_kernel_that_declares_a_mask_gets_it():
    seen = []
    causal = Kernel("causal", lambda o: (seen.append(o.mask), (o.queries, o.mass))[1], masks=frozenset({"causal"}))
    masked = replace(operands(), mask="causal")
    assert causal.can(masked)
    causal(masked)
    assert seen == ["causal"]


def test_only_a_tolerance_that_can_be_met_is_accepted():
    """Kernels with a stated error need one; kernels that keep all digits do not care."""
    for kernel in KERNELS.values():
        if kernel.devices != frozenset({"cuda"}):
            right = operands(d=kernel.dimension or 3)
            assert kernel.can(right) == kernel.can(right, 1e-13) == (kernel.least_rtol is None)
            assert kernel.can(right, 1e-6)


def test_less_precision_than_the_tensors_have_is_no_ability():
    """By declaration, without a device: the choice must not lose digits."""
    computes_in = {torch.float32: [True, False], torch.float64: [True, True], torch.bfloat16: [False, False]}
    for precision, can in computes_in.items():
        kernel = Kernel("some", lambda o: (o.queries, o.mass), precision=precision)
        assert [kernel.can(operands(dtype=dtype)) for dtype in (torch.float32, torch.float64)] == can


def test_half_precision_states_its_rounding():
    kernel = Kernel("half", lambda o: (o.queries, o.mass), precision=torch.bfloat16)
    assert kernel(operands()).error == pytest.approx(2 * 2**-7 * (4 + 2.0))
    assert KERNELS["dense"](operands(), 1e-6).error is None
    single = operands(dtype=torch.float32)
    assert KERNELS["dense"](single, 1e-6).error == single.rounding(torch.float32)
    assert KERNELS["dense"](single).error is None
