"""Every kernel of the CPU against the dense formula in extended precision; what kernels declare is true."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention.attention_reference import LAYOUTS, check, conditioning, errors, masses, tokens
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
    beta = beta if dtype == torch.float64 else min(beta, 1e5)  # beyond, float32 scores have no digits left
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
        ("nearby", operands(d=5)),
        ("nearby", operands(d=1)),
        ("nearby", operands(d=2, d_v=2)),
        ("nearby", operands(d=3, length=2.0)),
        ("nearby", operands(d=3, dtype=torch.float32)),
        ("sphere", operands(d=2)),
        ("sphere", operands(d=3, d_v=9)),
        ("sphere", operands(d=3, length=2.0)),
        ("sphere", operands(d=3, dtype=torch.float32)),
        ("sphere_grid", operands(d=3, d_v=9)),
    ],
)
def test_what_a_kernel_cannot_is_declared_and_refused(name, wrong):
    assert not KERNELS[name].can(wrong, 1e-6)
    with pytest.raises(InvalidInput):
        KERNELS[name](wrong, 1e-6)


@pytest.mark.parametrize(
    "name", ["dense", "fused", "blocks", "products", "sdpa", "nearby", "circle", "sphere", "sphere_grid"]
)
def test_what_a_kernel_can_is_declared_and_done(name):
    right = operands(d=KERNELS[name].dimension or 3)
    assert KERNELS[name].can(right, 1e-6)
    found, exact = KERNELS[name](right, 1e-6), KERNELS["dense"](right)
    assert found.kernel == name
    assert float((found.mean - exact.mean).norm(dim=1).max()) <= (found.error or 1e-14) <= 1e-6


@pytest.mark.parametrize("name", ["fused", "blocks", "products", "sdpa", "circle"])
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
    rounding = 2**-7 * (8 + (3 + 3**0.5) * 2.0 + 2 * np.log(6))
    assert kernel(operands()).error == pytest.approx(rounding + 6 * 2.0**-23, rel=1e-9)
    assert KERNELS["dense"](operands(), 1e-6).error is None
    single = operands(dtype=torch.float32)
    stated = single.rounding(torch.float32) + 6 * 2.0**-23
    assert KERNELS["dense"](single, 1e-6).error == pytest.approx(stated, rel=1e-8)
    assert KERNELS["dense"](single).error is None


@pytest.mark.parametrize("kernel", ["dense", "blocks", "sdpa"])
def test_products_that_round_one_way_stay_below_the_stated_error(kernel):
    """Equal products round alike while their sum is between two powers of two: their errors add up like d."""
    d, ratio = 2**18, 0.0
    for a, b in np.random.default_rng(0).uniform(0.5, 1.0, size=(6, 2)).astype(np.float32):
        x, y, one = torch.full((1, d), float(a)), torch.full((1, d), float(b)), torch.ones(1)
        asked = Operands(x, y, y, one, 100.0 / d)
        off = abs(KERNELS[kernel](asked).log_partition.item() - 100.0 * float(a) * float(b))
        assert off <= KERNELS[kernel].rounding(asked)
        ratio = max(ratio, off / (2.0**-23 * (9 + (3 + d**0.5) * asked.largest_score)))
    assert ratio > 1.0  # sqrt(d), as for errors that are independent, would be too little


def test_the_rounding_of_sums_is_stated_with_that_of_scores():
    """A kernel adds what it declares, in the precision it computes in, not in that of the tensors."""
    asked = operands()
    kernel = Kernel("sums", lambda o: (o.queries, o.mass), additions=lambda o: 100.0 * len(o.keys) + 6)
    single = replace(kernel, precision=torch.float32)
    scores = 8 + (6 + 3 / 2) * 2.0 + 2 * np.log(6)
    assert kernel.rounding(asked) == pytest.approx(2.0**-52 * (scores + 6), rel=1e-9)
    assert single.rounding(asked) == pytest.approx(2.0**-23 * (scores + 606), rel=1e-8)
    assert kernel(asked, 1e-6).error is None
    assert single(asked).error == single.rounding(asked)
    assert kernel(operands(dtype=torch.float32)).error is None
    assert kernel(operands(dtype=torch.float32), 1e-3).error == pytest.approx(2.0**-23 * (scores + 606), rel=1e-6)


@pytest.mark.parametrize("kernel", ["auto", *CPU_KERNELS])
@pytest.mark.parametrize("heavy", [1, 3, 1000, 5000])
@pytest.mark.parametrize("d", [2, 3, 8])
def test_a_light_near_key_beats_heavy_far_ones(kernel, heavy, d):
    """Masses 1 and 1e-300 against weights e^500 and e^-500: the light key has all but e^-309 of the sum."""
    for dtype, light, beta, rtol in (
        (torch.float64, 1e-300, 500.0, None),
        (torch.float64, 1e-300, 2e4, 1e-6),
        (torch.float32, 1e-30, 100.0, None),
        (torch.float32, 1e-30, 100.0, 1e-3),
        (torch.float32, 1e-37, 1e3, 1e-3),
    ):
        east = torch.nn.functional.one_hot(torch.tensor([0]), d).to(dtype)
        keys = torch.cat([east.repeat(heavy, 1), -east])
        mass = torch.ones(heavy + 1, dtype=dtype)
        mass[-1] = light
        found = attend(-east, keys, mass, beta, kernel=kernel, rtol=rtol)
        assert found.mean[0, 0].item() == pytest.approx(-1.0, abs=1e-6)
        check(found, -east, keys, keys, mass, beta)


@pytest.mark.parametrize("kernel", ["auto", *CPU_KERNELS])
@pytest.mark.parametrize("d", [2, 16])
@pytest.mark.parametrize("spread", [0.0, 1e-9, 1e-3])
@pytest.mark.parametrize(("n_q", "n_k"), [(1, 1000), (20, 1000), (3, 20_000)])
def test_float32_states_the_rounding_of_its_sums(kernel, d, spread, n_q, n_k):
    """Keys that are equal, or nearly: all weights alike, so that the roundings of a sum do not average out."""
    if kernel == "fused" and d > 8:
        return
    x = tokens(1, d, "uniform", 5) + spread * tokens(n_k, d, "uniform", 6)
    keys = (x / x.norm(dim=1, keepdim=True)).float()
    found = attend(keys[:n_q], keys, beta=1.0, kernel=kernel, rtol=1e-3)
    mass = torch.full((n_k,), 1 / n_k)
    off, off_log = errors((found.mean, found.log_partition), keys[:n_q], keys, keys, mass, 1.0)
    assert max(off, off_log) <= found.error
    if kernel == "auto":
        assert found.error <= 1e-3


@pytest.mark.parametrize("n_q", [1, 3])
@pytest.mark.parametrize("kernel", ["auto", "blocks", "sdpa"])
def test_a_million_equal_keys_in_float32(kernel, n_q):
    """The mean is the key and Z = e^{|k|^2}, to the error that is stated."""
    key = tokens(1, 16, "uniform", 5).float()
    found = attend(key.repeat(n_q, 1), key.repeat(1_000_000, 1), beta=1.0, kernel=kernel, rtol=1e-3)
    off = float((found.mean - key).double().norm(dim=1).max()) / float(key.double().norm())
    off_log = float((found.log_partition.double() - key.double().square().sum()).abs().max())
    assert max(off, off_log) <= found.error
    if kernel == "auto":
        assert found.error <= 1e-4


def test_a_kernel_refuses_what_it_does_not_resolve():
    flat = tokens(1500, 2, "uniform", 0)
    steep = flat @ torch.tensor([[1.3, -0.4], [0.2, 0.9]], dtype=torch.float64)
    with pytest.raises(
        InvalidInput, match=r'kernel="circle" resolves beta max\|q\| up to 20000, got .*use kernel='
    ):
        attend(steep, flat, beta=1e6, kernel="circle")
    mass = torch.logspace(0, -200, 1500, dtype=torch.float64)
    for kernel, x in (("circle", flat), ("sphere", tokens(1500, 3, "uniform", 0))):
        assert not KERNELS[kernel].can(Operands(x, x, x, mass, 8.0), 1e-6)
        with pytest.raises(InvalidInput, match=r"masses whose ratios are up to 1e\+150, got 10\^200; use kernel="):
            attend(x, x, mass, beta=8.0, kernel=kernel)
    with pytest.raises(InvalidInput, match="needs unit keys, got a squared length off by"):
        attend(flat, 1.01 * flat, kernel="circle")


@pytest.mark.parametrize("kernel", ["auto", *CPU_KERNELS, "nearby", "circle", "sphere", "sphere_grid"])
def test_keys_of_mass_zero_are_no_keys(kernel):
    """One of length five, nearest to all queries, changes nothing, whatever the kernel."""
    d = {"circle": 2}.get(kernel, 3)
    x = tokens(1200, d, "uniform", 0)
    far = torch.cat([x, 5 * x[:1], x[:40]])
    mass = torch.cat([torch.full((1200,), 1 / 1200, dtype=torch.float64), torch.zeros(41, dtype=torch.float64)])
    for rtol in (None, 1e-8):
        with_them = attend(x, far, mass, beta=9.0, kernel=kernel, rtol=rtol)
        without = attend(x, x, mass[:1200], beta=9.0, kernel=kernel, rtol=rtol)
        torch.testing.assert_close(with_them.mean, without.mean, rtol=0, atol=1e-14)
        torch.testing.assert_close(with_them.log_partition, without.log_partition, rtol=0, atol=1e-14)
        assert with_them.error == pytest.approx(without.error)


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", 3), ("function", None), ("least_rtol", 2.0), ("dimension", 0), ("most_pairs", 1.5),
     ("most_sharp", "x"), ("other_values", 1), ("dtypes", [torch.float32]), ("masks", "causal"), ("precision", 32),
     ("cost", 3), ("devices", "cpu"), ("additions", 7)],
)  # fmt: skip
def test_a_declaration_that_makes_no_sense_is_refused(field, value):
    with pytest.raises(InvalidInput, match=field):
        replace(KERNELS["dense"], **{field: value})


@pytest.mark.parametrize("nonsense", [None, "x", [[1.0]], 3, torch.ones(2, 2)])
def test_kernels_take_operands(nonsense):
    for call in (KERNELS["dense"], KERNELS["dense"].can, KERNELS["dense"].rounding, KERNELS["circle"]):
        with pytest.raises(InvalidInput, match="operands must be Operands"):
            call(nonsense)
    with pytest.raises(InvalidInput, match="rtol must be None or lie between 0 and 1"):
        KERNELS["dense"](operands(), "low")
