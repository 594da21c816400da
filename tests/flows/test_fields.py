"""Every field against the dense reference, and the symmetries that every flow has."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metastable as ms
import reference
from metastable.errors import InvalidInput, NoEnergy


def random_weights(seed, d):
    g = torch.Generator().manual_seed(seed)
    return ms.AttentionWeights(
        V=torch.randn(d, d, generator=g, dtype=torch.float64),
        B=torch.eye(d).double() + 0.5 * torch.randn(d, d, generator=g, dtype=torch.float64),
    )


def random_measure(seed, n, d):
    g = torch.Generator().manual_seed(seed + 1)
    mass = torch.rand(n, generator=g, dtype=torch.float64) + 0.1
    return ms.Measure(ms.sphere.uniform(n, d, seed=g), mass)


FLOWS = {
    "SelfAttention": lambda w: ms.SelfAttention(w, 2.5),
    "SelfAttention, field": lambda w: ms.SelfAttention(w, 2.5, field=w.V[0]),
    "UnnormalizedAttention": lambda w: ms.UnnormalizedAttention(w, 1.5),
    "ZeroTemperature": ms.ZeroTemperature,
    "Hardmax": ms.Hardmax,
    "EuclideanAttention": lambda w: ms.EuclideanAttention(w, 2.5),
    "MultiHead": lambda w: ms.MultiHead(
        [ms.SelfAttention(w, 1.0), ms.UnnormalizedAttention(ms.AttentionWeights(V=w.B, B=w.V), 0.7)]
    ),
    "Schedule": lambda w: ms.SelfAttention(ms.Schedule(lambda t: w), 2.5),
}
flows = pytest.mark.parametrize("build", FLOWS.values(), ids=FLOWS.keys())
cases = given(seed=st.integers(0, 10**6), n=st.integers(2, 12), d=st.integers(2, 5))


@cases
def test_fields_against_the_reference(seed, n, d):
    w, rho = random_weights(seed, d), random_measure(seed, n, d)
    x, m = rho.numpy()
    V, B = w.V.numpy(), w.B.numpy()
    for flow, expected in (
        (ms.SelfAttention(w, 3.0), reference.self_attention(x, m, V, B, 3.0)),
        (ms.UnnormalizedAttention(w, 1.5), reference.unnormalized(x, m, V, B, 1.5)),
        (ms.ZeroTemperature(w), reference.zero_temperature(x, V, B)),
    ):
        got = flow.velocity(0.0, rho.points, rho.mass).numpy()
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


@flows
@cases
def test_rotation_equivariance(build, seed, n, d):
    w, rho = random_weights(seed, d), random_measure(seed, n, d)
    R = torch.linalg.qr(torch.randn(d, d, generator=torch.Generator().manual_seed(seed)).double())[0]
    turned = ms.AttentionWeights(V=R @ w.V @ R.T, B=R @ w.B @ R.T)
    flow, flow_turned = build(w), build(turned)
    if getattr(flow, "field", None) is not None:
        flow_turned.field = R @ flow.field
    v = flow.velocity(0.0, rho.points, rho.mass) @ R.T
    v_turned = flow_turned.velocity(0.0, rho.points @ R.T, rho.mass)
    assert (v - v_turned).abs().max() <= 1e-10 * (1 + v.abs().max())


@flows
@cases
def test_permutation_equivariance(build, seed, n, d):
    w, rho = random_weights(seed, d), random_measure(seed, n, d)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    flow = build(w)
    v = flow.velocity(0.0, rho.points, rho.mass)[order]
    permuted = flow.velocity(0.0, rho.points[order], rho.mass[order])
    assert (v - permuted).abs().max() <= 1e-12 * (1 + v.abs().max())


@flows
@cases
def test_mass_splitting(build, seed, n, d):
    """One token of mass 2m moves like two tokens of mass m, and everybody else does not notice."""
    w, rho = random_weights(seed, d), random_measure(seed, n, d)
    flow = build(w)
    v = flow.velocity(0.0, rho.points, rho.mass)
    half = rho.mass[0] / 2
    split = ms.Measure(torch.cat([rho.points, rho.points[:1]]), torch.cat([half[None], rho.mass[1:], half[None]]))
    v_split = flow.velocity(0.0, split.points, split.mass)
    assert (v - v_split[:n]).abs().max() <= 1e-12 * (1 + v.abs().max())
    assert (v_split[0] - v_split[-1]).abs().max() <= 1e-14 * (1 + v.abs().max())


@flows
@cases
def test_velocity_is_tangent_and_zero_homogeneous(build, seed, n, d):
    w, rho = random_weights(seed, d), random_measure(seed, n, d)
    flow = build(w)
    if not flow.spherical:
        return
    v = flow.velocity(0.0, rho.points, rho.mass)
    assert ((v * rho.points).sum(1)).abs().max() <= 1e-13 * (1 + v.abs().max())
    length = 0.5 + torch.rand(n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert (flow.velocity(0.0, length * rho.points, rho.mass) - v).abs().max() <= 1e-12 * (1 + v.abs().max())


@given(seed=st.integers(0, 10**6), rank=st.integers(1, 3))
def test_factors_equal_dense(seed, rank):
    d, n = 6, 9
    g = torch.Generator().manual_seed(seed)
    Q, K, Vh, Oh = (torch.randn(rank, d, generator=g, dtype=torch.float64) for _ in range(4))
    low = ms.AttentionWeights.from_qkv(Q, K, Vh, Oh.T)
    dense = ms.AttentionWeights(V=Oh.T @ Vh, B=Q.T @ K)
    rho = random_measure(seed, n, d)
    for flow in (ms.SelfAttention, ms.UnnormalizedAttention):
        a, b = (flow(w, 0.7).velocity(0.0, *rho) for w in (low, dense))
        assert (a - b).abs().max() <= 1e-12 * (1 + b.abs().max())
    assert abs(low.B_norm - dense.B_norm) <= 1e-12 * dense.B_norm
    assert abs(low.V_norm - dense.V_norm) <= 1e-12 * dense.V_norm
    assert (low.B_transpose(rho.points) - rho.points @ dense.B).abs().max() < 1e-12


def test_field_adds_to_the_logits():
    w, rho = random_weights(5, 3), random_measure(5, 8, 3)
    field = torch.tensor([0.3, -2.0, 1.0], dtype=torch.float64)
    tilted = ms.Measure(rho.points, rho.mass * torch.exp(rho.points @ field))
    expected = ms.SelfAttention(w, 2.0).velocity(0.0, rho.points, tilted.mass)
    assert (ms.SelfAttention(w, 2.0, field=field).velocity(0.0, *rho) - expected).abs().max() < 1e-13


def test_hardmax_is_the_limit_of_softmax_and_shares_ties():
    w, rho = random_weights(8, 3), random_measure(8, 20, 3)
    limit = ms.Hardmax(w).velocity(0.0, *rho)
    assert (ms.SelfAttention(w, 1e6).velocity(0.0, *rho) - limit).abs().max() < 1e-9
    identity = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    # Token 0 sees tokens 1 and 2 (masses 1 : 3) under the same angle and no better one, itself excluded by B.
    swap = ms.AttentionWeights(V=identity.V, B=-torch.eye(2))
    points = [[-1.0, 0.0], [0.6, 0.8], [0.6, -0.8]]
    v = ms.Hardmax(swap).velocity(0.0, *ms.Measure(points, mass=[1, 1, 3]))
    assert torch.allclose(v[0], torch.tensor([0.0, -0.4], dtype=torch.float64), atol=1e-14)


def test_unnormalized_scale_is_a_change_of_time():
    w, rho = random_weights(2, 3), random_measure(2, 6, 3)
    plain = ms.UnnormalizedAttention(w, 2.0).velocity(0.0, *rho)
    scaled = ms.UnnormalizedAttention(w, 2.0, log_scale=3.0).velocity(0.0, *rho)
    assert (scaled * np.exp(3.0) - plain).abs().max() < 1e-12
    assert ms.UnnormalizedAttention(w, 2.0).log_scale == 0
    large = ms.UnnormalizedAttention(w, 1e6)
    assert large.log_scale == pytest.approx(1e6 * w.B_norm)
    assert torch.isfinite(large.velocity(0.0, *rho)).all()
    with pytest.raises(InvalidInput, match="overflows"):
        ms.UnnormalizedAttention(w, 1e6, log_scale=0.0)


def test_energies_exist_where_they_should():
    rho = random_measure(1, 5, 3)
    symmetric = ms.AttentionWeights(V=2 * torch.eye(3), B=torch.eye(3))
    assert ms.SelfAttention(symmetric, 1.0).energy(*rho) > 0
    w = random_weights(1, 3)
    for flow in (
        ms.SelfAttention(w, 1.0),
        ms.Hardmax(symmetric),
        ms.ZeroTemperature(w),
        ms.EuclideanAttention(symmetric, 1.0),
    ):
        with pytest.raises(NoEnergy):
            flow.energy(*rho)
    with pytest.raises(InvalidInput, match="log=True"):
        ms.SelfAttention(symmetric, 1e4).energy(*rho)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda w: ms.SelfAttention(w, -1.0), "beta must be finite and >= 0, got -1.0"),
        (lambda w: ms.SelfAttention(w, float("nan")), "beta must be finite and >= 0, got nan"),
        (lambda w: ms.SelfAttention(w, 1.0, field=[1.0]), r"field must have shape \(3,\)"),
        (lambda w: ms.SelfAttention(w, 1.0, field=[float("nan")] * 3), "field must be finite"),
        (lambda w: ms.SelfAttention(w, 1.0, rtol=5.0), "rtol must be None or lie between 0 and 1"),
        (lambda w: ms.SelfAttention(w, 1.0, kernel="magic"), "unknown kernel 'magic'"),
        (lambda w: ms.SelfAttention(w.V, 1.0), "weights must be AttentionWeights"),
        (
            lambda w: ms.ZeroTemperature(ms.AttentionWeights(V=w.V, B=torch.diag(torch.tensor([1.0, 1.0, 0.0])))),
            "rank 2 in dimension 3",
        ),
        (lambda w: ms.AttentionWeights(V=w.V, B=[[1.0, 2.0]]), "B must be square"),
        (lambda w: ms.AttentionWeights(V=w.V, B=torch.eye(2)), "same shape"),
        (lambda w: ms.AttentionWeights(V=w.V * float("nan"), B=w.B), "V must be finite"),
        (lambda w: ms.AttentionWeights(V="abc", B=w.B), "V must be"),
        (lambda w: ms.AttentionWeights.from_qkv(torch.ones(1, 3), torch.ones(2, 3), w.V), "Q and K must have"),
        (lambda w: ms.AttentionWeights.from_qkv(torch.ones(1, 3), torch.ones(1, 3), torch.ones(1, 3)), "needs O"),
        (lambda w: ms.Schedule.layers([], 1.0), "at least one layer"),
        (lambda w: ms.Schedule.layers([w], -1.0), "t must be finite and > 0"),
        (lambda w: ms.Schedule.layers([w, w], 1.0, knots=[0.0, 1.0]), "need 3 knots"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(build, match):
    with pytest.raises(InvalidInput, match=match):
        build(random_weights(0, 3))
