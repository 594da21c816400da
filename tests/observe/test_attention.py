"""Energy and entropy of attention against their definitions."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metastable as ms
from metastable import observe
from metastable.errors import InvalidInput
from small_runs import gaussian


def head(seed, d):
    g = torch.Generator().manual_seed(seed)
    return ms.AttentionWeights(
        V=torch.randn(d, d, generator=g, dtype=torch.float64), B=torch.randn(d, d, generator=g, dtype=torch.float64)
    )


@given(seed=st.integers(0, 10**6), beta=st.sampled_from([0.0, 0.3, 5.0]))
def test_energy_and_entropy_against_their_definitions(seed, beta):
    w = head(seed, 3)
    mass = torch.rand(8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    mass[2] = 0.0
    rho = ms.Measure(ms.sphere.uniform(8, 3, seed=seed), mass)
    scores = rho.points @ w.B @ rho.points.T
    pair = rho.mass[:, None] * rho.mass
    expected = (
        float((pair * torch.exp(beta * scores)).sum() / (2 * beta)) if beta else float((pair * scores).sum()) / 2
    )
    assert observe.interaction_energy(rho, w, beta) == pytest.approx(expected, rel=1e-12, abs=1e-14)
    if beta:
        assert observe.interaction_energy(rho, w, beta, log=True) == pytest.approx(math.log(expected), abs=1e-12)
    A = rho.mass * torch.exp(beta * scores)
    A = A / A.sum(1, keepdim=True)
    entropy = -torch.special.xlogy(A, A).sum(1)
    assert (observe.attention_entropy(rho, w, beta) - entropy).abs().max() < 1e-12


def test_log_energy_at_a_million():
    w = ms.AttentionWeights(V=torch.eye(3), B=torch.eye(3))
    log_energy = observe.interaction_energy(ms.sphere.uniform(10, 3), w, 1e6, log=True)
    assert log_energy == pytest.approx(1e6 - math.log(10) - math.log(2e6), abs=1e-6)


def test_v7_entropy_identity():
    """dS_i/dt = -Cov_{A_i}(s_i., s_i.'), with s the scores."""
    w, beta = ms.AttentionWeights(V=gaussian(70, 3, 3), B=gaussian(71, 3, 3)), 1.7
    x, n = ms.sphere.uniform(9, 3, seed=10), 9
    flow = ms.SelfAttention(w, beta)
    mass = torch.full((n,), 1 / n, dtype=torch.float64)
    v = flow.velocity(0.0, x, mass)
    scores = beta * x @ w.B @ x.T
    change = beta * (v @ w.B @ x.T + x @ w.B @ v.T)
    A = torch.softmax(scores, dim=1)
    mean = lambda f: (A * f).sum(1)  # noqa: E731
    expected = -(mean(scores * change) - mean(scores) * mean(change))
    h = 1e-5
    after, before = (observe.attention_entropy(ms.sphere.exp(x, s * h * v), w, beta) for s in (1.0, -1.0))
    assert ((after - before) / (2 * h) - expected).abs().max() < 1e-7
    assert (observe.attention_entropy(x, w, beta) + (A * torch.log(A)).sum(1)).abs().max() < 1e-12


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: observe.attention_entropy(x, head(0, 3), 1.0), "but the weights have dimension 3"),
        (lambda x: observe.interaction_energy(x, head(0, 2), -1.0), "beta must be >= 0"),
        (lambda x: observe.interaction_energy(x, head(0, 2), 0.0, log=True), "needs beta > 0"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(InvalidInput, match=match):
        call(ms.sphere.uniform(5, 2))
