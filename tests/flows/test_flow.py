"""What every flow promises, ours and those of others: symmetries, tangency, rates, and sentences."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metastable as ms
from metastable.errors import InvalidInput, NoEnergy, SolveError
from metastable.flows import Drift
from small_runs import identity, random_measure, random_weights

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
on_the_sphere = pytest.mark.parametrize(
    "build",
    [build for name, build in FLOWS.items() if name != "EuclideanAttention"],
    ids=[name for name in FLOWS if name != "EuclideanAttention"],
)
cases = given(seed=st.integers(0, 10**6), n=st.integers(2, 12), d=st.integers(2, 5))


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


@on_the_sphere
@cases
def test_velocity_is_tangent_and_zero_homogeneous(build, seed, n, d):
    w, rho = random_weights(seed, d), random_measure(seed, n, d)
    flow = build(w)
    v = flow.velocity(0.0, rho.points, rho.mass)
    assert ((v * rho.points).sum(1)).abs().max() <= 1e-13 * (1 + v.abs().max())
    length = 0.5 + torch.rand(n, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert (flow.velocity(0.0, length * rho.points, rho.mass) - v).abs().max() <= 1e-12 * (1 + v.abs().max())


class Gather(ms.Flow):
    """x' = P_x k E[y], which is self-attention at beta = 0 with V = k I."""

    d = 3

    def __init__(self, k=1.0, returns=lambda drift: drift):
        self.k, self.returns = k, returns

    def drift(self, t, points, mass):
        return self.returns(self.k * (mass @ points).expand_as(points))


def test_an_own_flow_is_a_dimension_and_a_drift():
    """As a plain tensor, and as a Drift in factors: the digits of the flow of this package that it is."""
    rho = random_measure(1, 9, 3)
    expected = ms.solve(ms.SelfAttention(identity(3, 2.0), 0.0), rho, 1.5).end.points
    for returns in (lambda f: f, Drift, lambda f: Drift(f / 2, matrix=2 * torch.eye(3).double())):
        end = ms.solve(Gather(2.0, returns), rho, 1.5).end.points
        assert (end - expected).abs().max() < 1e-8
    assert (
        Gather(2.0).velocity(0.0, *rho) - ms.SelfAttention(identity(3, 2.0), 0.0).velocity(0.0, *rho)
    ).abs().max() < 1e-15


def test_the_estimated_rate_is_the_derivative_along_the_flow():
    """x' = P_x A x, A = diag(3, 1): at the angle a, v = -sin(2a) along the circle and v'(v/|v|) = 2 cos(2a)."""

    class Linear(ms.Flow):
        d = 2

        def drift(self, t, points, mass):
            return points * points.new_tensor([3.0, 1.0])

    for angle in (0.1, 0.4, 1.3):
        rate = Linear().evaluate(0.0, ms.sphere.from_angles([angle]), torch.ones(1).double()).rate
        # Along the circle the derivative has the part 2 cos(2a), and |v| across it, because the tangent turns.
        assert rate == pytest.approx(math.hypot(2 * math.cos(2 * angle), math.sin(2 * angle)), rel=1e-6)
    assert Linear().evaluate(0.0, ms.sphere.from_angles([0.0]), torch.ones(1).double()).rate == 0.0


def test_a_stated_rate_is_taken_and_costs_no_evaluation():
    calls = []
    counted = Gather(1.0, lambda f: calls.append(1) or Drift(f, 3.5))
    assert counted.evaluate(0.0, *random_measure(1, 4, 3)).rate == 3.5
    assert len(calls) == 1
    lazy = Gather(1.0, lambda f: Drift(f, lambda: 4.5))
    assert ms.MultiHead([lazy, counted]).evaluate(0.0, *random_measure(1, 4, 3)).rate == 8.0


def test_an_own_flow_without_a_rate_is_a_head_among_others():
    rho = random_measure(3, 7, 3)
    softmax = ms.SelfAttention(random_weights(3, 3), 1.0)
    both = ms.MultiHead([Gather(2.0), softmax])
    expected = Gather(2.0).velocity(0.0, *rho) + softmax.velocity(0.0, *rho)
    assert (both.velocity(0.0, *rho) - expected).abs().max() < 1e-14
    assert both.evaluate(0.0, *rho).rate > softmax.evaluate(0.0, *rho).rate


def test_a_stiff_own_flow_is_solved_without_a_stated_rate():
    """Fifty times the speed, the same orbit at a fiftieth of the time."""
    rho = random_measure(2, 9, 3)
    slow = ms.solve(Gather(1.0), rho, 5.0).end.points
    assert (ms.solve(Gather(50.0), rho, 0.1).end.points - slow).abs().max() < 1e-8


@pytest.mark.parametrize(
    ("returns", "match"),
    [
        (lambda f: None, "the drift of Gather must be a tensor or a Drift, got NoneType"),
        (lambda f: f.numpy(), "must be a tensor or a Drift, got ndarray"),
        (lambda f: f[0], r"must have the tokens' shape \(4, 3\), got \(3,\)"),
        (lambda f: f[:, :2], r"shape \(4, 3\), got \(4, 2\)"),
        (lambda f: Drift(f, matrix=torch.eye(3, 2).double()), r"shape \(4, 3\), got \(4, 2\)"),
        (lambda f: Drift(f[:, :2], matrix=torch.eye(3).double()), r"got \(4, 2, 3, 3\)"),
        (lambda f: f.float(), "must be float64 on cpu like the tokens, got float32 on cpu"),
    ],
)
def test_a_wrong_drift_gets_a_sentence(returns, match):
    with pytest.raises(InvalidInput, match=match):
        ms.solve(Gather(1.0, returns), random_measure(1, 4, 3), 1.0)


def test_a_drift_that_is_not_finite_ends_the_run():
    for method in ("adaptive", "dop853", "rk4"):
        with pytest.raises(SolveError, match="not finite"):
            ms.solve(Gather(float("nan")), random_measure(1, 4, 3), 1.0, method=method)


def test_an_own_flow_has_no_energy():
    with pytest.raises(NoEnergy, match="Gather is not a gradient flow"):
        Gather().energy(*random_measure(1, 4, 3))


@pytest.mark.parametrize(
    "wrong", [None, "3", [], [[]], {}, 1j, 3, torch.ones(2, 3), torch.ones(2), [[1.0], [1.0, 2.0]]]
)
def test_tokens_that_do_not_fit_are_refused_in_a_sentence(wrong):
    w, rho = ms.AttentionWeights(V=torch.eye(4), B=torch.eye(4)), ms.Measure(torch.eye(4))
    for flow in (ms.SelfAttention(w, 1.0), ms.UnnormalizedAttention(w, 1.0), ms.ZeroTemperature(w), ms.Hardmax(w)):
        for call in (flow.velocity, lambda t, *tokens, flow=flow: flow.energy(*tokens, t)):
            if isinstance(flow, ms.Hardmax) and call != flow.velocity:
                continue
            with pytest.raises(InvalidInput, match="points must"):
                call(0.0, wrong, rho.mass)
            with pytest.raises(InvalidInput, match="mass must"):
                call(0.0, rho.points, wrong)
        with pytest.raises(InvalidInput, match="plan must be the Plan of a run"):
            flow.for_run(wrong)


def test_a_sparse_tensor_is_an_array_like_any_other():
    flow = ms.Hardmax(ms.AttentionWeights(V=torch.eye(2).to_sparse(), B=torch.eye(2)))
    assert flow.velocity(0.0, torch.eye(2).to_sparse(), [0.5, 0.5]).shape == (2, 2)
