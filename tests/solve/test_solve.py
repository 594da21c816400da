"""The solver against closed forms, conserved quantities and independent integrators."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad, solve_ivp

import metastable as ms
import reference
from fuzz.solve import CASES
from metastable import observe
from metastable.errors import StorageError
from small_runs import equiangular, flow, gaussian, identity, short_run, small_run, weights

W1 = weights()
W2 = ms.AttentionWeights(V=-5 * torch.eye(2), B=-torch.eye(2))
X0 = ms.sphere.uniform(9, 2, seed=4)


def dop853(field, x0, t):
    shape = x0.shape
    run = solve_ivp(
        lambda _, y: field(y.reshape(shape)).ravel(), (0, t), x0.ravel(), method="DOP853", rtol=1e-12, atol=1e-13
    )
    return run.y[:, -1].reshape(shape)


@pytest.mark.parametrize("beta", [0.0, 1.0, 20.0])
def test_self_attention_against_scipy(beta):
    w = ms.AttentionWeights(V=gaussian(4, 3, 3), B=gaussian(5, 3, 3))
    rho = ms.Measure(ms.sphere.uniform(10, 3, seed=6), mass=torch.arange(1.0, 11.0))
    path = ms.solve(ms.SelfAttention(w, beta), rho, 2.0, times=[0.0, 0.777, 2.0])
    x, m = rho.numpy()
    for i, t in ((1, 0.777), (2, 2.0)):
        expected = dop853(lambda y: reference.self_attention(y, m, w.V.numpy(), w.B.numpy(), beta), x, t)
        assert np.abs(path.points[i].numpy() - expected).max() < 2e-8


def symmetric_M(seed, d):
    """Weights with M = V B^T symmetric, with the spectrum 2, 1, 0.5, ... in a random basis, and B far from I."""
    basis = torch.linalg.qr(gaussian(seed, d, d))[0]
    M = basis @ torch.diag(torch.tensor([2.0, 1.0, 0.5, -0.3][:d], dtype=torch.float64)) @ basis.T
    B = torch.eye(d).double() + 0.4 * gaussian(seed + 1, d, d)
    return ms.AttentionWeights(V=M @ torch.linalg.inv(B).T, B=B), basis


def test_z2_projection_is_invariant_along_orbits():
    w, basis = symmetric_M(10, 4)
    E = basis[:, :1]
    x0 = ms.sphere.uniform(200, 4, seed=1)
    sign = torch.sign(x0 @ E)
    path = ms.solve(ms.ZeroTemperature(w), x0, 40.0, times=[1.0, 5.0, 40.0], method="adaptive")
    for points in path.points:
        assert (torch.sign(points @ E) == sign).all()
    assert (path.end.points - sign * E.T).abs().max() < 1e-6


def test_z3_lyapunov_functions_are_never_violated():
    w, basis = symmetric_M(20, 4)
    x0 = ms.sphere.uniform(200, 4, seed=2)
    path = ms.solve(ms.ZeroTemperature(w), x0, 6.0, times=61, method="adaptive")
    x = path.points
    inside = (x @ basis[:, 0]).abs()
    tangent = torch.linalg.vector_norm(x @ basis[:, 1:], dim=-1) / inside
    guaranteed = tangent[0] * torch.exp(-1.0 * path.times / w.B_norm)[:, None]
    assert (tangent <= guaranteed * (1 + 1e-9) + 1e-12).all()
    rayleigh = ((x @ w.M) * x).sum(-1)
    assert (rayleigh.diff(dim=0) >= -1e-9).all()
    flow = ms.ZeroTemperature(w)
    energies = observe.along(path, lambda rho: flow.energy(*rho))
    assert (energies.diff() > 0).all()


@pytest.mark.parametrize("beta", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("kind", ["SA", "USA"])
def test_b1_equiangular_tokens(kind, beta):
    n, g0 = 6, 0.1
    scale = 1.0 if kind == "SA" else math.exp(-beta)
    flow = (ms.SelfAttention if kind == "SA" else ms.UnnormalizedAttention)(identity(n), beta)

    def rate(g):
        numerator = 2 * math.exp(beta * g) * (1 - g) * ((n - 1) * g + 1)
        return numerator / (math.exp(beta) + (n - 1) * math.exp(beta * g)) if kind == "SA" else numerator / n

    t = 1.5 * scale
    path = ms.solve(flow, equiangular(n, g0), t, rtol=1e-10, atol=1e-12)
    overlaps = path.end.points @ path.end.points.T
    off = overlaps[~torch.eye(n, dtype=torch.bool)]
    expected = solve_ivp(lambda _, g: [rate(g[0])], (0, t), [g0], method="DOP853", rtol=1e-13, atol=1e-14).y[0, -1]
    assert (off - expected).abs().max() < 1e-9


def test_b2_closed_form_at_beta_zero():
    n = 8
    path = ms.solve(ms.SelfAttention(identity(n), 0.0), equiangular(n, 0.0), 3.0, times=7, rtol=1e-11, atol=1e-13)
    for t, x in zip(path.times.tolist(), path.points, strict=True):
        expected = (math.exp(2 * t) - 1) / (math.exp(2 * t) + n - 1)
        assert abs(float(x[0] @ x[1]) - expected) < 1e-9


@pytest.mark.parametrize(("kind", "expected"), [("SA", 2.0), ("USA", 2 * math.exp(1.5))])
def test_b3_late_rates(kind, expected):
    beta = 1.5
    flow = (ms.SelfAttention if kind == "SA" else ms.UnnormalizedAttention)(identity(5), beta)
    times = np.array([6.0, 9.0]) * (2.0 / expected)
    path = ms.solve(flow, equiangular(5, 0.3), float(times[-1]), times=times, rtol=1e-11, atol=1e-14)
    distance = [float(torch.linalg.vector_norm(x[0] - x[1])) for x in path.points]
    rate = -2 * math.log(distance[1] / distance[0]) / (times[1] - times[0])
    assert rate == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_b5_cross_ratio_is_conserved(seed):
    """beta = 0, any V: the flow acts by Moebius maps, which conserve the generalised cross ratio."""
    d = 3 + seed % 3
    V = torch.eye(d).double() if seed < 2 else torch.eye(d).double() + 0.3 * gaussian(seed, d, d)
    x0 = ms.sphere.uniform(8, d, seed=seed + 30)
    path = ms.solve(ms.SelfAttention(ms.AttentionWeights(V=V, B=torch.eye(d)), 0.0), x0, 10.0)

    def ratio(x):
        gap = lambda i, j: torch.linalg.vector_norm(x[i] - x[j])  # noqa: E731
        return float(gap(0, 1) * gap(2, 3) / (gap(0, 2) * gap(1, 3)))

    assert ratio(path.end.points) == pytest.approx(ratio(x0), rel=1e-9)


def test_z10_oblique_projector_decides_the_limit():
    """Non-symmetric M with a real dominant eigenvalue: the sign is that of the left eigenvector."""
    right = gaussian(80, 3, 3)
    left = torch.linalg.inv(right)
    M = right @ torch.diag(torch.tensor([2.0, 0.7, -0.4], dtype=torch.float64)) @ left
    B = torch.eye(3).double() + 0.3 * gaussian(81, 3, 3)
    w = ms.AttentionWeights(V=M @ torch.linalg.inv(B).T, B=B)
    x0 = ms.sphere.uniform(300, 3, seed=11)
    path = ms.solve(ms.ZeroTemperature(w), x0, 40.0, method="adaptive")
    u = right[:, 0] / right[:, 0].norm()
    oblique = torch.sign(x0 @ left[0] * (right[:, 0] @ u))
    assert (path.end.points - oblique[:, None] * u).abs().max() < 1e-5
    assert (torch.sign(x0 @ u) != oblique).float().mean() > 0.05


def test_z10_period_of_a_rotation():
    """Dominant pair a +- i w: the period in t is int_0^{2 pi/w} |B^T x(tau)| dtau."""
    M = torch.tensor([[0.3, -1.3, 0.0], [1.1, 0.3, 0.0], [0.4, 0.2, -1.0]], dtype=torch.float64)
    omega = math.sqrt(1.3 * 1.1)
    B = torch.eye(3).double() + 0.3 * gaussian(90, 3, 3)
    w = ms.AttentionWeights(V=M @ torch.linalg.inv(B).T, B=B)
    flow = ms.ZeroTemperature(w)
    start = ms.solve(flow, ms.sphere.uniform(1, 3, seed=12), 60.0).end.points

    def speed(tau):
        y = torch.linalg.matrix_exp(tau * M) @ start[0]
        return float(torch.linalg.vector_norm(w.B.T @ y) / torch.linalg.vector_norm(y))

    period = quad(speed, 0, 2 * math.pi / omega, epsabs=1e-12, epsrel=1e-12)[0]
    path = ms.solve(flow, start, period, times=[period / 2, period], method="adaptive", rtol=1e-11, atol=1e-12)
    assert (path.points[1] - start).abs().max() < 4e-9
    half = quad(speed, 0, math.pi / omega, epsabs=1e-12, epsrel=1e-12)[0]
    turned = ms.solve(flow, start, half, method="adaptive", rtol=1e-11, atol=1e-12).end.points
    assert (turned + start).abs().max() < 4e-9


def test_z10_jordan_block_is_algebraic():
    M = torch.tensor([[1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
    w = ms.AttentionWeights(V=M, B=torch.eye(2))
    path = ms.solve(ms.ZeroTemperature(w), [[0.6, 0.8]], 1000.0, times=[100.0, 1000.0], method="adaptive")
    for t, x in zip(path.times.tolist(), path.points[:, 0], strict=True):
        assert abs(float(x[1] / x[0])) * t == pytest.approx(1.0, abs=1.0 / t)
    exact = ms.solve(ms.ZeroTemperature(w), [[0.6, 0.8]], 1000.0).end.points
    assert (exact - path.end.points).abs().max() < 1e-8


def test_reference_cases_r3_and_r4():
    r3 = ms.solve(ms.SelfAttention(identity(2), 2.0), ms.sphere.from_angles([0.0, 2.0]), 3.0)
    angle = ms.sphere.geodesic_distance(r3.end.points[:1], r3.end.points[1:])
    assert float(angle) == pytest.approx(1.523464076857738, abs=1e-8)
    B = torch.tensor([[1.0, 0.5], [0.0, 1.0]], dtype=torch.float64)
    w = ms.AttentionWeights(V=torch.diag(torch.tensor([2.0, 1.0])).double() @ torch.linalg.inv(B).T, B=B)
    r4 = ms.solve(ms.SelfAttention(w, 32.0), ms.sphere.equispaced(200), 1.5)
    expected = torch.tensor([0.9995363189289486, -0.030449090987535947], dtype=torch.float64)
    assert (r4.end.points[0] - expected).abs().max() < 1e-7


def test_beta_from_zero_to_a_million_runs_without_overflow():
    w = ms.AttentionWeights(V=torch.diag(torch.tensor([2.0, 1.0])), B=[[1.0, 0.5], [0.0, 1.0]])
    for beta in (0.0, 1e-3, 1e4, 1e6):
        for kind in (ms.SelfAttention, ms.UnnormalizedAttention):
            end = ms.solve(kind(w, beta), ms.sphere.uniform(24, 2, seed=1), 1.0, rtol=1e-6, atol=1e-8).end.points
            assert torch.isfinite(end).all()
            assert (torch.linalg.vector_norm(end, dim=1) - 1).abs().max() < 1e-12


def test_tokens_stay_on_the_sphere_for_a_thousand_time_units():
    w = ms.AttentionWeights(V=[[1.0, -0.5], [0.5, 1.0]], B=torch.eye(2))
    path = ms.solve(ms.SelfAttention(w, 4.0), ms.sphere.uniform(20, 2, seed=1), 1000.0, rtol=1e-5)
    assert (torch.linalg.vector_norm(path.end.points, dim=1) - 1).abs().max() < 1e-12


def test_single_precision_on_request():
    w = ms.AttentionWeights(V=gaussian(4, 3, 3), B=gaussian(5, 3, 3))
    x0 = ms.sphere.uniform(30, 3, seed=6)
    single = ms.solve(ms.SelfAttention(w, 8.0), x0, 2.0, dtype=torch.float32, rtol=1e-6)
    assert single.end.points.dtype == torch.float32
    double = ms.solve(ms.SelfAttention(w, 8.0), x0, 2.0)
    assert (single.end.points.double() - double.end.points).abs().max() < 1e-4


def test_saved_frames_do_not_depend_on_the_save_times():
    few, many = small_run(times=[0.5, 2.0]), small_run(times=41)
    assert torch.equal(few.points[0], many.points[10])
    assert torch.equal(few.end.points, many.end.points)
    assert torch.equal(many.points[0], ms.sphere.uniform(12, 2, seed=1))
    assert few.times.tolist() == [0.5, 2.0]
    assert torch.equal(small_run(times=[1.0]).end.points, few.end.points)
    assert small_run(times=[1.0]).end_time == 2.0


def test_zero_time_and_zero_velocity():
    x0 = ms.sphere.uniform(3, 2, seed=1)
    assert torch.equal(ms.solve(flow(), x0, 0.0).end.points, x0)
    consensus = torch.tensor([[1.0, 0.0]] * 3, dtype=torch.float64)
    still = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    assert torch.equal(ms.solve(ms.SelfAttention(still, 1.0), consensus, 50.0).end.points, consensus)


def test_smooth_schedule_against_the_reference_integrator():
    from scipy.integrate import solve_ivp

    def at(t):
        return ms.AttentionWeights(V=(1 + np.sin(t)) * np.eye(2), B=[[1.0, t], [0.0, 1.0]])

    run = ms.SelfAttention(ms.Schedule(at), 2.0)
    rho = ms.Measure(ms.sphere.uniform(5, 2, seed=4))

    def field(t, y):
        return run.velocity(t, torch.from_numpy(y.reshape(5, 2)), rho.mass).numpy().ravel()

    expected = solve_ivp(field, (0, 2), rho.points.numpy().ravel(), method="DOP853", rtol=1e-11, atol=1e-12).y[
        :, -1
    ]
    assert np.abs(ms.solve(run, rho, 2.0).end.points.numpy().ravel() - expected).max() < 1e-8


def test_the_same_call_gives_the_same_digits_on_two_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        x = ms.sphere.uniform(20000, 2, seed=1)
        flow = ms.SelfAttention(W1, 4.0, rtol=1e-9)
        first = ms.solve(flow, x, 0.05).end.points
        for _ in range(4):
            assert torch.equal(ms.solve(flow, x, 0.05).end.points, first)
    finally:
        torch.set_num_threads(threads)


def test_other_schedules_and_observables_are_other_runs(tmp_path):
    def schedule(rate):
        return ms.SelfAttention(
            ms.Schedule(lambda t: ms.AttentionWeights(V=(1 + rate * t) * np.eye(2), B=np.eye(2))), 1.0
        )

    ms.solve(schedule(0.0), X0, 1.0, out=tmp_path / "s.zarr")
    with pytest.raises(StorageError, match="holds another run"):
        ms.solve(schedule(5.0), X0, 1.0, out=tmp_path / "s.zarr")
    short_run(out=tmp_path / "e.zarr", events=[ms.Event(lambda x, m: x[0, 0], 2.0)])
    with pytest.raises(StorageError, match="holds another run"):
        short_run(out=tmp_path / "e.zarr", events=[ms.Event(lambda x, m: x[1, 1], 2.0)])


def test_tiny_steps_far_from_a_huge_final_time_are_allowed():
    fast = ms.AttentionWeights(V=1e3 * torch.eye(2), B=torch.eye(2))
    stop = ms.Event(lambda x, m: (m @ x).norm(), level=0.99, stop=True)
    path = ms.solve(ms.SelfAttention(fast, 1.0), ms.sphere.from_angles([0.0, 1.0, 2.0]), 1e12, events=[stop])
    assert 0 < path.end_time < 1.0
    for beta in (30.0, 100.0):
        flow = ms.UnnormalizedAttention(ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2)), beta)
        assert torch.isfinite(ms.solve(flow, X0, 1.0).end.points).all()


@pytest.mark.parametrize("case", CASES)
def test_fuzz(case):
    """Thousands of seeds of the same run in `make fuzz`."""
    assert [found for seed in range(12) if (found := CASES[case](seed)) is not None] == []
