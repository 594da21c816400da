"""Self-attention: its field against the reference, its logits, its factors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metastable as ms
import reference
from metastable.errors import InvalidInput
from small_runs import low_rank_and_dense, random_measure, random_weights


@given(seed=st.integers(0, 10**6), n=st.integers(2, 12), d=st.integers(2, 5))
def test_the_field_against_the_reference(seed, n, d):
    w, rho = random_weights(seed, d), random_measure(seed, n, d)
    x, m = rho.numpy()
    expected = reference.self_attention(x, m, w.V.numpy(), w.B.numpy(), 3.0)
    got = ms.SelfAttention(w, 3.0).velocity(0.0, rho.points, rho.mass).numpy()
    assert np.abs(got - expected).max() <= 1e-12 * (1 + np.abs(expected).max())


def test_reference_case_r1():
    x = torch.tensor([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.8, 0], [0.36, 0.48, -0.8]], dtype=torch.float64)
    B = torch.tensor([[1, 0.5, 0], [0, 1, 0.2], [0.3, 0, 0.8]], dtype=torch.float64)
    V = torch.diag(torch.tensor([2, 1, 0.5], dtype=torch.float64)) @ torch.linalg.inv(B).T
    v = ms.SelfAttention(ms.AttentionWeights(V=V, B=B), 3.0).velocity(0.0, x, torch.full((5,), 0.2).double())
    expected = torch.tensor(
        [
            [0.3277660912804723, -0.24582456846035428, -0.09349059382962291],
            [0.7288456047135696, 0.049619533452198605, 0.3577522421924254],
        ],
        dtype=torch.float64,
    )
    assert (v[3:] - expected).abs().max() < 1e-12


def test_field_adds_to_the_logits():
    w, rho = random_weights(5, 3), random_measure(5, 8, 3)
    field = torch.tensor([0.3, -2.0, 1.0], dtype=torch.float64)
    tilted = ms.Measure(rho.points, rho.mass * torch.exp(rho.points @ field))
    expected = ms.SelfAttention(w, 2.0).velocity(0.0, rho.points, tilted.mass)
    assert (ms.SelfAttention(w, 2.0, field=field).velocity(0.0, *rho) - expected).abs().max() < 1e-13


@given(seed=st.integers(0, 10**6), rank=st.integers(1, 3))
def test_factors_equal_dense(seed, rank):
    low, dense = low_rank_and_dense(seed, rank, 6)
    rho = random_measure(seed, 9, 6)
    for flow in (ms.SelfAttention, ms.UnnormalizedAttention):
        a, b = (flow(w, 0.7).velocity(0.0, *rho) for w in (low, dense))
        assert (a - b).abs().max() <= 1e-12 * (1 + b.abs().max())


@pytest.mark.parametrize("beta", [0.5, 4.0])
def test_the_rate_bounds_the_estimated_one(beta):
    """|V| (2 + beta |B| E[1 - |m|^2]) is a Lipschitz constant on average; the derivative along the flow is less."""
    w, rho = random_weights(4, 3), random_measure(4, 30, 3)
    flow = ms.SelfAttention(w, beta)
    rate = flow.evaluate(0.0, *rho).rate
    assert 0 < flow._estimated_rate(0.0, *rho, flow.drift(0.0, *rho)) < rate
    assert rate <= w.V_norm * (2 + beta * w.B_norm)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda w: ms.SelfAttention(w, -1.0), "beta must be >= 0, got -1.0"),
        (lambda w: ms.SelfAttention(w, float("nan")), "beta must be finite and >= 0, got nan"),
        (lambda w: ms.SelfAttention(w, 1.0, field=[1.0]), r"field must have shape \(3,\)"),
        (lambda w: ms.SelfAttention(w, 1.0, field=[float("nan")] * 3), "field must be finite"),
        (lambda w: ms.SelfAttention(w, 1.0, rtol=5.0), "rtol must be > 0 and < 1, got 5.0"),
        (lambda w: ms.SelfAttention(w, 1.0, kernel="magic"), "unknown kernel 'magic'; choose from auto, "),
        (lambda w: ms.SelfAttention(w.V, 1.0), "weights must be AttentionWeights"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(build, match):
    with pytest.raises(InvalidInput, match=match):
        build(random_weights(0, 3))
