"""One head, dense and in factors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metastable as ms
from metastable.errors import InvalidInput
from small_runs import low_rank_and_dense, random_measure, random_weights, weights


@given(seed=st.integers(0, 10**6), rank=st.integers(1, 3))
def test_factors_equal_dense(seed, rank):
    low, dense = low_rank_and_dense(seed, rank, 6)
    x = random_measure(seed, 9, 6).points
    assert abs(low.B_norm - dense.B_norm) <= 1e-12 * dense.B_norm
    assert abs(low.V_norm - dense.V_norm) <= 1e-12 * dense.V_norm
    assert (low.B_transpose(x) - x @ dense.B).abs().max() < 1e-12
    for name in ("V", "B", "M"):
        assert (getattr(low, name) - getattr(dense, name)).abs().max() < 1e-12 * (1 + dense.M.abs().max())
    for w in (low, dense):
        assert (w.queries(x) @ w.keys(x).T - x @ dense.B @ x.T).abs().max() < 1e-11
        assert (w.apply_V(x) - x @ dense.V.T).abs().max() < 1e-11
        # An average commutes with V: what attention averages, and the matrix after it.
        mean = w.values(x).mean(0, keepdim=True)
        assert (w.apply_after_average(mean) - x.mean(0) @ dense.V.T).abs().max() < 1e-12


def test_the_same_weights_in_another_precision():
    single = weights().to(dtype=torch.float32)
    assert single.V.dtype == torch.float32
    assert torch.equal(single.M, (single.V @ single.B.T))
    assert weights().V.dtype == torch.float64


def test_double_stays_double_and_single_is_announced():
    for exact in ([[0.3]], [[np.float64(0.3)]], np.array([[0.3]]), torch.tensor([[0.3]], dtype=torch.float64)):
        w = ms.AttentionWeights(V=exact, B=exact)
        assert w.V.item() == w.B.item() == 0.3 and w.V.dtype == torch.float64
        assert repr(w) == "AttentionWeights(d=1, dense)"
        assert ms.AttentionWeights.from_qkv(exact, exact, exact).V.item() == 0.3
    single = torch.tensor([[0.3]])
    w = ms.AttentionWeights(V=single, B=[[0.3]])
    assert w.V.item() == single.item() != 0.3 and w.B.item() == 0.3
    assert repr(w) == repr(w.to(dtype=torch.float32)) == "AttentionWeights(d=1, dense, given in float32)"
    assert "given in float32" in repr(ms.AttentionWeights.from_qkv(single, single, single))


def test_what_they_are_in_one_line():
    assert repr(weights()) == "AttentionWeights(d=2, dense)"


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda w: ms.AttentionWeights(V=w.V, B=[[1.0, 2.0]]), "B must be square"),
        (lambda w: ms.AttentionWeights(V=w.V, B=torch.eye(2)), "same shape"),
        (lambda w: ms.AttentionWeights(V=w.V * float("nan"), B=w.B), "V must be finite"),
        (lambda w: ms.AttentionWeights(V="abc", B=w.B), "V must be"),
        (lambda w: ms.AttentionWeights.from_qkv(torch.ones(1, 3), torch.ones(2, 3), w.V), "Q and K must have"),
        (lambda w: ms.AttentionWeights.from_qkv(torch.ones(1, 3), torch.ones(1, 3), torch.ones(1, 3)), "needs O"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(build, match):
    with pytest.raises(InvalidInput, match=match):
        build(random_weights(0, 3))
