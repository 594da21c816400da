import math

import numpy as np
import pytest
import torch
from scipy import integrate as quadrature
from scipy import special
from scipy.integrate import solve_ivp
from scipy.optimize import linear_sum_assignment

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows.orbit import orbit, orbit_clock
from metastable.theory import clock, coupling_to_limit, distance_to_limit, limit, limit_map, zero_temperature
from metastable.theory.zero_temperature import nearest_point_distance


def weights(seed, d, spread=1.0):
    rng = np.random.default_rng(seed)
    B = np.eye(d) + spread * rng.normal(size=(d, d)) / math.sqrt(d)
    return ms.AttentionWeights(V=rng.normal(size=(d, d)), B=B)


def integrate(w, x0, t):
    M, B = w.M.numpy(), w.B.numpy()

    def field(_, flat):
        x = flat.reshape(x0.shape)
        v = x @ M.T / np.linalg.norm(x @ B, axis=1, keepdims=True)
        return (v - (x * v).sum(1, keepdims=True) * x).ravel()

    end = solve_ivp(field, (0, t), x0.numpy().ravel(), rtol=1e-11, atol=1e-13, method="DOP853").y[:, -1]
    return torch.from_numpy(end.reshape(x0.shape))


@pytest.mark.parametrize(("seed", "d"), [(0, 2), (1, 3), (2, 4), (3, 4), (4, 7)])
def test_orbit_agrees_with_an_integrator(seed, d):
    w = weights(seed, d, 0.6)
    x0 = ms.sphere.uniform(20, d, seed=seed)
    # relative errors of the integrator grow with the stability exponent, hence not 1e-11
    assert torch.allclose(zero_temperature(w, x0, 3.0), integrate(w, x0, 3.0), atol=1e-8, rtol=0)


def test_semigroup_to_rounding():
    w = weights(5, 3, 0.5)
    x0 = ms.sphere.uniform(200, 3, seed=1)
    half = zero_temperature(w, x0, 0.7)
    whole = zero_temperature(w, x0, 1.1)
    assert float((zero_temperature(w, half, 0.4) - whole).abs().max()) < 2e-12


def test_many_times_agree_with_single_times_in_any_order():
    w = weights(6, 3)
    x0 = ms.sphere.uniform(30, 3, seed=2)
    times = [2.0, 0.0, 0.3, 2.0, 1.7]
    path = zero_temperature(w, x0, times)
    assert path.shape == (5, 30, 3)
    for k, t in enumerate(times):
        assert torch.allclose(path[k], zero_temperature(w, x0, t), atol=1e-12, rtol=0)
    assert torch.equal(path[1], x0)
    assert torch.equal(path[0], path[3])


def test_isometry_is_the_closed_form_with_tau_equal_t_over_b():
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3)))[
        0
    ]
    w = ms.AttentionWeights(V=torch.diag(torch.tensor([2.0, 1.0, 0.5, -1.0])), B=2.5 * rotation)
    x0 = ms.sphere.uniform(10, 4, seed=0)
    y = x0 @ torch.linalg.matrix_exp(w.M * 1.3 / 2.5).T
    assert torch.allclose(zero_temperature(w, x0, 1.3), ms.sphere.normalize(y), atol=1e-13, rtol=0)
    assert torch.allclose(clock(w, x0, 1.3), torch.full((10,), 1.3 / 2.5, dtype=torch.float64), atol=1e-15)


def test_clock_is_the_time_change():
    w = weights(7, 3, 0.5)
    x0 = ms.sphere.uniform(40, 3, seed=3)
    tau = clock(w, x0, 1.9)
    y = torch.stack([x @ torch.linalg.matrix_exp(s * w.M).T for x, s in zip(x0, tau, strict=True)])
    assert torch.allclose(ms.sphere.normalize(y), zero_temperature(w, x0, 1.9), atol=1e-12, rtol=0)


def test_planar_travel_time_closed_form():
    # Z9: t = [F(R_0) - F(R_t)]/g in d = 2 with B = diag(b1, b2), M = diag(l1, l2)
    b1, b2, l1, l2 = 1.3, 0.4, 2.0, 0.7
    w = ms.AttentionWeights(V=np.diag([l1 / b1, l2 / b2]), B=np.diag([b1, b2]))

    def F(R):
        return b1 / 2 * math.log(abs((R - b1) / (R + b1))) + b2 / 2 * math.log(abs((b2 + R) / (b2 - R)))

    def R(x):
        return math.sqrt((b1 * float(x[0])) ** 2 + (b2 * float(x[1])) ** 2)

    x0 = ms.sphere.from_angles([1.2])
    xt = zero_temperature(w, x0, 0.9)
    assert (F(R(x0[0])) - F(R(xt[0]))) / (l1 - l2) == pytest.approx(0.9, abs=1e-12)


def test_ill_conditioned_scores_and_jordan_blocks():
    w = ms.AttentionWeights(V=[[1.0, 1.0], [0.0, 1.0]], B=np.eye(2))
    x = zero_temperature(w, ms.sphere.from_angles([1.0]), 100.0)[0]
    assert 100.0 * float(x[1] / x[0]) == pytest.approx(0.998, abs=0.01)
    hard = ms.AttentionWeights(V=[[1.0, 0.3], [-0.2, 0.4]], B=[[1.0, 0.0], [0.0, 1e-3]])
    x0 = ms.sphere.uniform(20, 2, seed=4)
    assert torch.allclose(zero_temperature(hard, x0, 0.3), integrate(hard, x0, 0.3), atol=1e-8, rtol=0)


def test_tokens_at_tiny_distance_of_the_separatrix_keep_their_digits():
    w = ms.AttentionWeights(V=np.diag([2.0, 1.0 / 3]), B=np.diag([1.0, 3.0]))
    x0 = ms.Measure([[1e-20, 1.0]]).points
    t = 3.0
    # on e_2 the clock runs at 1/|B^T e_2| = 1/3, and the offset grows like e^{tau (2 - 1)}
    assert float(zero_temperature(w, x0, t)[0, 0]) == pytest.approx(1e-20 * math.exp(t / 3), rel=1e-12)


def test_long_times_and_trivial_flow():
    w = weights(8, 3, 0.3)
    x = zero_temperature(w, ms.sphere.uniform(5, 3, seed=0), 300.0)
    assert bool(torch.isfinite(x).all())
    assert torch.allclose(torch.linalg.vector_norm(x, dim=1), torch.ones(5, dtype=torch.float64))
    B = torch.tensor([[1.0, 0.5], [0.0, 2.0]], dtype=torch.float64)
    still = ms.AttentionWeights(V=3 * torch.linalg.inv(B.T), B=B)
    x0 = ms.sphere.uniform(5, 2, seed=0)
    assert torch.allclose(zero_temperature(still, x0, 4.0), x0, atol=1e-14, rtol=0)


def test_refusals():
    w = ms.AttentionWeights(V=np.eye(2), B=np.diag([1.0, 0.0]))
    with pytest.raises(InvalidInput, match="invertible B"):
        zero_temperature(w, [[0.6, 0.8]], 1.0)
    good = ms.AttentionWeights(V=np.eye(2), B=np.eye(2))
    with pytest.raises(InvalidInput, match=">= 0, got -1"):
        zero_temperature(good, [[0.6, 0.8]], -1.0)
    with pytest.raises(InvalidInput, match="dimension 3"):
        zero_temperature(good, [[1.0, 0.0, 0.0]], 1.0)
    with pytest.raises(InvalidInput, match="shapes"):
        orbit(good.M, good.B, ms.sphere.uniform(3, 3), [1.0])
    assert orbit_clock(good.M, good.B, ms.sphere.uniform(3, 2), [0.0]).abs().max() == 0


def symmetric_weights(seed, d, k=1):
    """M symmetric with a k-fold leading eigenvalue, B a random perturbation of I."""
    rng = np.random.default_rng(seed)
    Z = np.linalg.qr(rng.normal(size=(d, d)))[0]
    M = Z @ np.diag([2.0] * k + list(np.linspace(1.2, -1.0, d - k))) @ Z.T
    B = np.eye(d) + 0.3 * rng.normal(size=(d, d))
    return ms.AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)


@pytest.mark.parametrize(("seed", "d", "k"), [(0, 2, 1), (1, 3, 1), (2, 3, 2), (3, 4, 2)])
def test_distance_is_the_optimal_assignment(seed, d, k):
    w = symmetric_weights(seed, d, k)
    x0 = ms.sphere.uniform(60, d, seed=seed)
    target = limit(w, x0).points
    for t in (0.0, 0.8, 2.0):
        x = zero_temperature(w, x0, t)
        cost = torch.cdist(x, target) ** 2
        rows, columns = linear_sum_assignment(cost.numpy())
        exact = math.sqrt(float(cost[rows, columns].mean()))
        assert distance_to_limit(w, x0, t) == pytest.approx(exact, abs=1e-7)
        assert coupling_to_limit(w, x0, t) == pytest.approx(exact, abs=1e-7)


def test_distance_shapes_masses_and_metrics():
    w = symmetric_weights(7, 3)
    rho = ms.Measure(ms.sphere.uniform(20, 3), mass=np.arange(1, 21))
    curve = distance_to_limit(w, rho, [0.0, 1.0, 2.0])
    assert curve.shape == (3,) and bool((curve[1:] < curve[:-1]).all())
    assert float(curve[1]) == distance_to_limit(w, rho, 1.0)
    assert isinstance(distance_to_limit(w, rho, 1.0), float)
    assert distance_to_limit(w, rho, 1.0, metric="geodesic") > float(curve[1])
    with pytest.raises(InvalidInput, match="metric"):
        distance_to_limit(w, rho, 1.0, metric="taxicab")


@pytest.mark.parametrize(("d", "k"), [(2, 1), (3, 1), (3, 2), (4, 2)])
def test_particles_follow_the_beta_law(d, k):
    # |P_E x|^2 ~ Beta(k/2, (d-k)/2) for uniform x; iid particles, hence 4 standard errors
    w = ms.AttentionWeights(V=np.diag([2.0] * k + [1.0] * (d - k)), B=np.eye(d))
    x0, s = ms.sphere.uniform(10000, d, seed=9), math.exp(-1.5)

    def cost(z):
        return 2 * (1 - z / math.sqrt(z * z + s * s * (1 - z * z)))

    norm = special.beta(k / 2, (d - k) / 2)
    moment = [
        2
        / norm
        * quadrature.quad(
            lambda p, j=j: cost(math.sin(p)) ** j * math.sin(p) ** (k - 1) * math.cos(p) ** (d - k - 1),
            0,
            math.pi / 2,
        )[0]
        for j in (1, 2)
    ]
    sigma = math.sqrt((moment[1] - moment[0] ** 2) / 10000)
    assert abs(distance_to_limit(w, x0, 1.5) ** 2 - moment[0]) < 4 * sigma


def test_nonsymmetric_distance_lies_below_the_coupling():
    rng = np.random.default_rng(3)
    S = rng.normal(size=(3, 3))
    w = ms.AttentionWeights(V=S @ np.diag([2.0, 0.5, -1.0]) @ np.linalg.inv(S), B=np.eye(3))
    x0 = ms.sphere.uniform(80, 3, seed=1)
    x, target = zero_temperature(w, x0, 0.4), limit_map(w)(x0)
    cost = (torch.cdist(x, target) ** 2).numpy()
    exact = math.sqrt(cost[linear_sum_assignment(cost)].mean())
    assert distance_to_limit(w, x0, 0.4) == pytest.approx(exact, abs=1e-9)
    assert distance_to_limit(w, x0, 0.4) < coupling_to_limit(w, x0, 0.4)


def test_nearest_point_distance_of_one_token_in_closed_form():
    angle = torch.tensor([0.3], dtype=torch.float64)
    x = torch.stack([torch.cos(angle), torch.sin(angle)], dim=1)[None]
    onto_e1, mass = torch.diag(torch.tensor([1.0, 0.0], dtype=torch.float64)), torch.ones(1, dtype=torch.float64)
    assert float(nearest_point_distance(onto_e1, x, mass, "geodesic")) == pytest.approx(0.3, rel=1e-14)
    assert float(nearest_point_distance(onto_e1, x, mass)) == pytest.approx(2 * math.sin(0.15), rel=1e-14)
