"""Every kernel of `attend` against the dense formula in extended precision, closed forms, and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention.attention_reference import LAYOUTS, conditioning, errors, masses, tokens
from metastable import sphere
from metastable.attention import KERNELS, attend
from metastable.attention.select import select
from metastable.errors import InvalidInput

CPU_KERNELS = ("dense", "fused", "blocks", "sdpa")
BETAS = (0.0, 1e-3, 1.0, 1e4, 1e6)
PRECISION = {torch.float64: 1e-12, torch.float32: 1e-5}


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
    assert result.mean.dtype == result.log_partition.dtype == dtype
    off, off_log = errors((result.mean, result.log_partition), queries, keys, values, mass, beta)
    assert max(off, off_log) <= PRECISION[dtype] + 8 * conditioning(queries, keys, beta, dtype)


@pytest.mark.parametrize("kernel", ["fused", "blocks", "sdpa"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("beta", [0.0, 1.0, 64.0, 3e3, 1e6])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_many_blocks_of_keys(kernel, dtype, beta, layout):
    """More keys than one block and more rows than one tile, so that running maxima are carried across blocks."""
    d = 3 if kernel == "fused" else 20
    keys = tokens(2600, d, layout, 3).to(dtype)
    queries = 1.7 * tokens(600, d, "uniform", 4).to(dtype)
    mass = masses(2600, 5).to(dtype)
    result = attend(queries, keys, mass, beta, kernel=kernel)
    off, off_log = errors((result.mean[::23], result.log_partition[::23]), queries[::23], keys, keys, mass, beta)
    assert max(off, off_log) <= PRECISION[dtype] + 8 * conditioning(queries, keys, beta, dtype)


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
        off, off_log = errors((result.mean, result.log_partition), queries, keys, keys, mass, beta)
        assert max(off, off_log) <= PRECISION[dtype] + 8 * conditioning(queries, keys, beta, dtype)


@pytest.mark.parametrize("kernel", ["fused", "blocks"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_scores_that_rise_from_block_to_block(kernel, dtype):
    """Keys sorted so that every block beats the last by hundreds: the sums are rescaled at every block."""
    keys = torch.linspace(-1, 1, 6000, dtype=torch.float64)[:, None].repeat(1, 2).to(dtype)
    queries = torch.tensor([[1.0, 0.5], [-1.0, 0.2]], dtype=dtype)
    mass = torch.full((6000,), 1 / 6000, dtype=dtype)
    for beta in (100.0, 1e4, 1e6):
        result = attend(queries, keys, mass, beta, kernel=kernel)
        off, off_log = errors((result.mean, result.log_partition), queries, keys, keys, mass, beta)
        assert max(off, off_log) <= PRECISION[dtype] + 8 * conditioning(queries, keys, beta, dtype)


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


def test_mixed_precision_is_promoted():
    x = tokens(20, 3, "uniform", 0)
    assert attend(x.float(), x).mean.dtype == torch.float64


def test_auto_names_the_kernel_that_ran():
    small, wide = tokens(300, 3, "uniform", 0), tokens(300, 40, "uniform", 0)
    assert attend(small, small).kernel == "fused"
    assert attend(wide, wide).kernel == "sdpa"
    assert attend(wide[:5], wide[:5]).kernel == "dense"
    assert attend(small, small, values=wide).kernel == "sdpa"
    many = tokens(2500, 9, "uniform", 0)
    assert attend(many, many).kernel == "blocks"
    assert attend(small, small).error is None


def test_rtol_on_the_sphere_takes_the_grid():
    x = tokens(25_000, 3, "clustered", 0)
    fast = attend(x[:20_000], x, beta=300.0, rtol=1e-7)
    assert fast.kernel == "sphere_grid" and fast.error is not None and fast.error <= 1e-7
    some = attend(x[:50], x, beta=300.0, rtol=1e-7)
    assert some.kernel == "fused" and some.error is None
    assert float((fast.mean[:50] - some.mean).norm(dim=1).max()) <= fast.error


def test_nothing_global_changes():
    before = torch.get_num_threads(), torch.get_default_dtype(), torch.get_rng_state().clone()
    x = tokens(3000, 30, "uniform", 0)
    attend(x, x, kernel="blocks")
    attend(x[:, :3], x[:, :3], kernel="fused")
    assert before[:2] == (torch.get_num_threads(), torch.get_default_dtype())
    assert torch.equal(before[2], torch.get_rng_state())


X = [[1.0, 0.0], [0.0, 1.0]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"queries": [1.0, 0.0], "keys": X}, "must be matrices"),
        ({"queries": [[1.0, 0.0, 0.0]], "keys": X}, "one dimension"),
        ({"queries": X, "keys": X, "values": [[1.0]]}, "2 keys but 1 values"),
        ({"queries": X, "keys": np.zeros((0, 2))}, "at least one key"),
        ({"queries": [[np.nan, 0.0]], "keys": X}, "finite"),
        ({"queries": X, "keys": [[np.inf, 0.0], [0.0, 1.0]]}, "finite"),
        ({"queries": X, "keys": X, "mass": [1.0]}, r"shape \(2,\)"),
        ({"queries": X, "keys": X, "mass": [1.0, -1.0]}, "mass must be"),
        ({"queries": X, "keys": X, "mass": [0.0, 0.0]}, "mass must be"),
        ({"queries": X, "keys": X, "mass": [np.nan, 1.0]}, "mass must be"),
        ({"queries": X, "keys": X, "beta": -3.0}, "beta must be finite and >= 0, got -3.0"),
        ({"queries": X, "keys": X, "beta": float("nan")}, "beta must be"),
        ({"queries": X, "keys": X, "beta": "hot"}, "beta must be"),
        ({"queries": X, "keys": X, "kernel": "fast"}, "unknown kernel 'fast'; choose from auto, blocks"),
        ({"queries": X, "keys": X, "rtol": 0.0}, "rtol must be"),
        ({"queries": X, "keys": X, "rtol": "low"}, "rtol must be"),
        ({"queries": np.ones((2, 9)), "keys": np.ones((2, 9)), "kernel": "fused"}, "up to 8, got 9"),
        ({"queries": [[1j, 0.0]], "keys": X}, "real"),
        ({"queries": [["a", "b"]], "keys": X}, "real numbers"),
    ],
)
def test_bad_input_is_a_sentence(arguments, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        attend(**arguments)


def test_select_is_total():
    """The choice exists for every shape and names a kernel of the table."""
    for d in (1, 2, 3, 8, 9, 64):
        for n in (1, 100, 5000):
            x = torch.zeros(n, d)
            assert select(x, x, x, 1.0, None) in KERNELS


def test_float32_tokens_meet_a_tolerance_or_say_what_they_reach() -> None:
    """A tolerance that float32 scores do not meet is met in float64; then only the result is rounded."""
    x = sphere.uniform(500, 2, seed=3)
    exact = attend(x.float().double(), x.float().double(), beta=256.0)
    for rtol in (1e-10, 1e-2):
        found = attend(x.float(), x.float(), beta=256.0, rtol=rtol)
        off = max(
            float((found.mean.double() - exact.mean).norm(dim=1).max()),
            float((found.log_partition.double() - exact.log_partition).abs().max()),
        )
        assert found.mean.dtype == torch.float32
        assert found.error is not None
        assert off <= found.error < 1e-3
    assert float((attend(x.float(), x.float(), beta=256.0, rtol=1e-6).mean - exact.mean).norm(dim=1).max()) < 2e-7
    assert attend(x.float(), x.float(), beta=256.0).error is None


def test_scores_without_digits_are_refused() -> None:
    x = sphere.uniform(300, 2, seed=3)
    with pytest.raises(
        InvalidInput, match=r"have no digits left in float64; use hardmax, or a smaller beta than 1e\+20"
    ):
        attend(x, x, beta=1e20)
    assert bool(torch.isfinite(attend(x, x, beta=1e12).mean).all())
