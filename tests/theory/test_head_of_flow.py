"""The one head of a flow, the limit of heads whose B is singular, and sentences where there is none."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import metastable as ms
from metastable.errors import InvalidInput, MetastableError, NotDefined
from metastable.theory import forecast, limit, limit_map
from metastable.theory.head_of_flow import head_of

D = 6


def low_rank(seed, rank=3, sign=1.0):
    g = torch.Generator().manual_seed(seed)
    key, value = (torch.randn(rank, D, generator=g, dtype=torch.float64) for _ in range(2))
    other = torch.randn(rank, D, generator=g, dtype=torch.float64)
    return ms.AttentionWeights.from_qkv(key + 0.2 * other, key, value, sign * (key + 0.1 * value).T)


def zero_temperature_end(w, x, t):
    """x' = P_x V B^T x/|B^T x| by scipy, written out."""
    V, B = w.V.numpy(), w.B.numpy()

    def field(_, flat):
        rows = flat.reshape(-1, D)
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        seen = rows @ B
        drift = (seen / np.linalg.norm(seen, axis=1, keepdims=True)) @ V.T
        return (drift - (drift * rows).sum(1, keepdims=True) * rows).ravel()

    end = solve_ivp(field, (0, t), x.numpy().ravel(), rtol=1e-10, atol=1e-12).y[:, -1].reshape(-1, D)
    return torch.from_numpy(end / np.linalg.norm(end, axis=1, keepdims=True))


def test_the_limit_of_a_singular_head_is_where_its_flow_goes():
    tried = 0
    for seed in range(12):
        w, x = low_rank(seed), ms.sphere.uniform(20, D, seed=seed)
        try:
            expected = limit(w, x).points
        except NotDefined:
            continue
        tried += 1
        found = zero_temperature_end(w, x, 60.0)
        assert float((found - expected).norm(dim=1).median()) < 1e-6, seed
        assert torch.allclose(limit_map(w)(zero_temperature_end(w, x, 0.5)), expected, atol=1e-6)
    assert tried >= 3


def test_tokens_that_run_into_the_kernel_have_no_limit():
    w = ms.AttentionWeights(V=-torch.eye(D), B=torch.diag(torch.tensor([1.0, 0.5, 0, 0, 0, 0])))
    with pytest.raises(NotDefined, match="run into the kernel"):
        limit(w, ms.sphere.uniform(5, D, seed=0))
    with pytest.raises(InvalidInput, match=r"invertible B.*limit\(w, tokens\) may exist") as caught:
        forecast(low_rank(1), 8.0, ms.sphere.uniform(5, D, seed=0))
    assert len(str(caught.value)) < 200


def test_a_flow_of_one_head_is_its_head():
    w = ms.AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    x = ms.sphere.equispaced(40)
    flow = ms.SelfAttention(w, 64.0)
    for one in (flow, ms.MultiHead([flow]), ms.SelfAttention(w, 64.0, field=[0.0, 0.0])):
        assert head_of(one) == (w, 64.0)
        assert torch.equal(limit(one, x).points, limit(w, x).points)
        assert forecast(one, x).to_dict() == forecast(w, 64.0, x).to_dict()
        assert forecast(one, rho0=x).beta == 64.0
    with pytest.raises(InvalidInput, match="a flow has its beta"):
        forecast(flow, 3.0, x)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (lambda w: ms.MultiHead([ms.SelfAttention(w, 1.0)] * 3), "3 heads have no limit map"),
        (lambda w: ms.SelfAttention(w, 1.0, field=[1.0, 0.0]), "a head with a field"),
        (lambda w: ms.MultiHead([ms.SelfAttention(w, 1.0, field=[1.0, 0.0])]), "a head with a field"),
        (lambda w: ms.SelfAttention(ms.Schedule(lambda t: w), 1.0), "change in time"),
        (lambda w: ms.SelfAttention(w, [1.0, 2.0]), "a beta for each system"),
        (lambda w: ms.Hardmax(w), "not about"),
        (lambda w: None, "must be AttentionWeights"),
    ],
)
def test_what_is_no_one_head_is_a_sentence(given, told):
    w = ms.AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    for call in (
        lambda flow: limit(flow, ms.sphere.equispaced(8)),
        lambda flow: forecast(flow, ms.sphere.equispaced(8)),
    ):
        with pytest.raises(MetastableError, match=told) as caught:
            call(given(w))
        assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)
