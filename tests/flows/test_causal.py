"""Causal flows: their field, the published dynamics on the circle, the order of tokens, runs and their records."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

import metastable as ms
import reference
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows import Causal
from metastable.flows.driven import DrivenAttention
from metastable.solve.rebuild import rebuilt
from small_runs import identity, low_rank_and_dense, random_measure, random_weights


def dense(x, mass, V, B, beta, alibi, include_self, normalized):
    """The definition, one token at a time."""
    n, drift = len(x), np.zeros_like(x)
    for j in range(n):
        seen = np.arange(j + include_self)
        weight = mass[seen] * np.exp(-alibi / n * (j - seen))
        if not weight.sum() > 0:
            continue
        scores = np.exp(beta * x[seen] @ (B.T @ x[j]))
        share = weight * scores / (weight * scores).sum() if normalized else weight / weight.sum() * scores
        drift[j] = V @ (share @ x[seen])
    return reference.project(x, drift)


@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 12),
    d=st.sampled_from([2, 3, 10]),
    alibi=st.sampled_from([0.0, 0.5, 3.0, 40.0]),
    include_self=st.booleans(),
    normalized=st.booleans(),
)
def test_the_field_against_the_definition(seed, n, d, alibi, include_self, normalized):
    w, rho = random_weights(seed, d), random_measure(seed, n, d)
    x, m = rho.numpy()
    expected = dense(x, m, w.V.numpy(), w.B.numpy(), 1.5, alibi, include_self, normalized)
    kind = ms.SelfAttention if normalized else ms.UnnormalizedAttention
    got = Causal(kind(w, 1.5), alibi, include_self).velocity(0.0, rho.points, rho.mass).numpy()
    assert np.abs(got - expected).max() <= 1e-12 * (1 + np.abs(expected).max())


def test_the_published_dynamics_on_the_circle():
    """theta_j' = -sum_{k<j} w_jk beta sin(theta_j - theta_k) e^{beta cos(theta_j - theta_k)}, by SciPy."""
    n, beta, alibi, t = 12, 1.3, 0.8, 2.0
    start = np.random.default_rng(5).uniform(0, 2 * math.pi, n)
    distance = np.arange(n)[:, None] - np.arange(n)
    weights = np.tril(np.exp(-alibi / n * distance), -1)
    weights[1:] /= weights[1:].sum(1, keepdims=True)

    def field(_, angle):
        gap = angle[:, None] - angle
        return -(weights * beta * np.sin(gap) * np.exp(beta * np.cos(gap))).sum(1)

    exact = integrate.solve_ivp(field, (0, t), start, rtol=1e-11, atol=1e-12).y[:, -1]
    w = ms.AttentionWeights(V=beta * np.eye(2), B=np.eye(2))
    flow = Causal(ms.UnnormalizedAttention(w, beta), alibi, include_self=False)
    path = ms.solve(flow, ms.sphere.from_angles(start), t, rtol=1e-9, atol=1e-11)
    assert (path.end.points - ms.sphere.from_angles(exact)).abs().max() < 1e-7
    assert torch.equal(path.points[-1][0], path.points[0][0])  # token 0 sees nothing and rests


def test_identity_values_lead_to_the_first_token():
    """[arXiv:2411.04990]: for V = I all tokens collapse to the start of the first."""
    for d, beta in ((2, 1.0), (3, 2.0)):
        start = ms.sphere.uniform(8, d, seed=2)
        end = ms.solve(Causal(ms.SelfAttention(identity(d), beta)), start, 100.0).end.points
        assert (end - start[0]).abs().max() < 1e-6
        free = ms.solve(ms.SelfAttention(identity(d), beta), start, 100.0).end.points
        assert (free - start[0]).abs().max() > 0.1  # without the mask they meet elsewhere


def test_tokens_have_an_order():
    w, rho = random_weights(1, 3), random_measure(1, 9, 3)
    flow = Causal(ms.SelfAttention(w, 2.0), 1.0)
    turned = torch.arange(9).flip(0)
    plain = flow.velocity(0.0, *rho)
    assert (flow.velocity(0.0, rho.points[turned], rho.mass[turned])[turned] - plain).abs().max() > 0.1
    fewer = Causal(ms.SelfAttention(w, 2.0)).velocity(0.0, rho.points[:4], rho.mass[:4])
    assert torch.allclose(Causal(ms.SelfAttention(w, 2.0)).velocity(0.0, *rho)[:4], fewer, rtol=0, atol=1e-14)


def test_heads_under_one_mask_and_heads_with_slopes_of_their_own():
    rho = random_measure(3, 7, 3)
    heads = [ms.SelfAttention(random_weights(k, 3), 1.0 + k, field=[0.1, 0.2, k]) for k in range(2)]
    single = [Causal(head, 1.5).velocity(0.0, *rho) for head in heads]
    for flow in (Causal(ms.MultiHead(heads), 1.5), ms.MultiHead([Causal(head, 1.5) for head in heads])):
        assert torch.allclose(flow.velocity(0.0, *rho), single[0] + single[1], rtol=0, atol=1e-13)
    slopes = ms.MultiHead([Causal(heads[0], 1.5), Causal(heads[1], 9.0)], "mean")
    expected = (single[0] + Causal(heads[1], 9.0).velocity(0.0, *rho)) / 2
    assert torch.allclose(slopes.velocity(0.0, *rho), expected, rtol=0, atol=1e-13)


def test_factors_of_low_rank_are_masked_like_dense_weights():
    low, full = low_rank_and_dense(0, 2, 6)
    rho = random_measure(2, 9, 6)
    for kind in (ms.SelfAttention, ms.UnnormalizedAttention):
        found, expected = (Causal(kind(w, 1.0), 2.0).velocity(0.0, *rho) for w in (low, full))
        assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    pair = [ms.SelfAttention(low, 1.0, rtol=None)] * 2  # without a mask these are computed at once
    found = Causal(ms.MultiHead(pair)).velocity(0.0, *rho)
    assert torch.allclose(found, 2 * Causal(pair[0]).velocity(0.0, *rho), rtol=0, atol=1e-13)


def test_a_run_is_recorded_rebuilt_and_resumed_bit_for_bit(tmp_path):
    class Interrupted(Exception):
        pass

    def interrupt(t, steps):
        if steps > 4:
            raise Interrupted

    flow = Causal(ms.UnnormalizedAttention(identity(2, 1.2), 1.2), 1.0, include_self=False)
    start = ms.sphere.uniform(20, 2, seed=3)
    whole = ms.solve(flow, start, 3.0, times=7)
    assert whole.provenance["attention"]["kernels"] == ["causal"]
    with pytest.raises(Interrupted):
        ms.solve(flow, start, 3.0, times=7, out=tmp_path / "run.zarr", checkpoint_every=0.0, progress=interrupt)
    resumed = ms.solve(flow, start, 3.0, times=7, out=tmp_path / "run.zarr")
    assert torch.equal(resumed.points, whole.points)
    again = rebuilt(flow.describe())
    assert isinstance(again, Causal) and again.describe() == flow.describe()
    assert rebuilt({"flow": "Causal", "of": {"flow": "unknown"}, "alibi": 1.0, "include_self": True}) is None


def test_scheduled_weights_keep_their_jumps():
    turned = ms.Schedule.layers([identity(2), identity(2, -1.0)], 1.0)
    flow = Causal(ms.SelfAttention(turned, 1.0))
    assert flow.breakpoints == ms.SelfAttention(turned, 1.0).breakpoints and len(flow.breakpoints) > 0


def test_tokens_without_mass_are_not_seen():
    rho = ms.Measure(ms.sphere.uniform(6, 2, seed=1), [0, 0, 1, 1, 0, 2])
    kept = ms.Measure(rho.points[[2, 3, 5]], [1, 1, 2])
    for kind in (ms.SelfAttention, ms.UnnormalizedAttention):
        flow = Causal(kind(identity(2), 2.0))
        found = flow.velocity(0.0, *rho)
        assert not found[:2].any()  # they see no mass
        assert torch.allclose(found[[2, 3, 5]], flow.velocity(0.0, *kept), rtol=0, atol=1e-14)


def test_there_is_no_energy():
    with pytest.raises(NoEnergy):
        Causal(ms.SelfAttention(identity(2), 1.0)).energy(*random_measure(0, 3, 2))


@pytest.mark.parametrize(
    "call",
    [
        lambda flow: Causal(None),
        lambda flow: Causal(ms.Hardmax(identity(2))),
        lambda flow: Causal(ms.ZeroTemperature(identity(2))),
        lambda flow: Causal(DrivenAttention(identity(2), 1.0, lambda t: torch.eye(2), torch.ones(2))),
        lambda flow: Causal(ms.MultiHead([flow, ms.Hardmax(identity(2))])),
        lambda flow: Causal(Causal(flow)),
        lambda flow: Causal(flow, alibi=-1.0),
        lambda flow: Causal(flow, alibi="1"),
        lambda flow: Causal(flow, alibi=math.nan),
        lambda flow: Causal(flow, alibi=1e7),
        lambda flow: Causal(flow, include_self=1),
    ],
)
def test_malformed_flows_are_sentences(call):
    with pytest.raises(InvalidInput) as refused:
        call(ms.SelfAttention(identity(2), 1.0))
    assert len(str(refused.value)) < 200


def test_many_systems_move_as_each_alone():
    many = ms.Ensemble(ms.sphere.uniform(12, 2, seed=4).view(3, 4, 2))
    betas = [0.5, 1.0, 2.0]
    path = ms.solve(Causal(ms.SelfAttention(identity(2), betas), alibi=1.0), many, t=1.0)
    for s, beta in enumerate(betas):
        alone = ms.solve(Causal(ms.SelfAttention(identity(2), beta), alibi=1.0), many[s], t=1.0)
        torch.testing.assert_close(path.end[s].points, alone.end.points, rtol=0, atol=1e-9)
