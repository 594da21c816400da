"""Reference numbers that engine, distances and limit must reproduce together (R1, R3-R5, R7, R8, R11)."""

import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.theory import coupling_to_limit, limit, limit_map
from metastable.transport import wasserstein

B_R1 = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.2], [0.3, 0.0, 0.8]])
R1 = ms.AttentionWeights(V=np.diag([2.0, 1.0, 0.5]) @ np.linalg.inv(B_R1.T), B=B_R1)
B_G = np.array([[1.0, 0.5], [0.0, 1.0]])
G = ms.AttentionWeights(V=np.diag([2.0, 1.0]) @ np.linalg.inv(B_G.T), B=B_G)
N = ms.AttentionWeights(V=np.diag([-1.0, -2.0]), B=np.eye(2))


def run(w, points, beta, t):
    return ms.solve(ms.SelfAttention(w, beta=beta), points, t=t, rtol=1e-10, atol=1e-12).end


def test_velocities_of_five_tokens():
    points = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.8, 0], [0.36, 0.48, -0.8]]
    rho = ms.Measure(points)
    v = ms.SelfAttention(R1, beta=3.0).velocity(0.0, rho.points, rho.mass)
    fourth = [0.3277660912804723, -0.24582456846035428, -0.09349059382962291]
    fifth = [0.7288456047135696, 0.049619533452198605, 0.3577522421924254]
    assert v[3].tolist() == pytest.approx(fourth, abs=1e-12)
    assert v[4].tolist() == pytest.approx(fifth, abs=1e-12)


def test_two_tokens_at_angle_two():
    w = ms.AttentionWeights(V=np.eye(2), B=np.eye(2))
    end = run(w, ms.sphere.from_angles([0.0, 2.0]), 2.0, 3.0)
    angle = ms.sphere.geodesic_distance(end.points[:1], end.points[1:])
    assert float(angle[0]) == pytest.approx(1.523464076857738, abs=1e-8)


def test_circle_of_200_tokens():
    x0 = ms.sphere.equispaced(200)
    end, target = run(G, x0, 32.0, 1.5), limit(G, x0)
    assert float(wasserstein(end, target)) == pytest.approx(0.477771553872676, abs=1e-7)
    assert float(wasserstein(end, target, metric="geodesic")) == pytest.approx(0.501120890233669, abs=1e-7)
    coupling = math.sqrt(float(((end.points - target.points) ** 2).sum(1).mean()))
    assert coupling == pytest.approx(0.47899682319035003, abs=1e-7)
    assert end.points[0].tolist() == pytest.approx([0.9995363189289486, -0.030449090987535947], abs=1e-7)


def test_fibonacci_sphere():
    x0 = ms.sphere.fibonacci(300)
    end, target = run(R1, x0, 20.0, 2.0), limit(R1, x0)
    assert float(wasserstein(end, target)) == pytest.approx(0.36362547646392207, abs=1e-7)
    assert float(wasserstein(end, target, metric="geodesic")) == pytest.approx(0.3774073469480313, abs=1e-7)
    onto = torch.linalg.vector_norm(end.points @ limit_map(R1).projector.T, dim=1)
    assert math.sqrt(float(2 * (1 - onto).mean())) == pytest.approx(0.36352191168161296, abs=1e-7)


def test_terminal_phase_on_the_top_of_V():
    x0 = ms.sphere.equispaced(200)
    end = run(G, x0, 64.0, 14.0)
    assert float(wasserstein(end, limit(G, x0))) == pytest.approx(0.45948828122348606, abs=1e-6)
    top = torch.tensor([1.0, -0.5], dtype=torch.float64) / math.hypot(1, 0.5)
    side = torch.sign(end.points @ top)
    assert int((side > 0).sum()) == 100
    assert float(torch.linalg.vector_norm(end.points - side[:, None] * top, dim=1).max()) < 2e-5


def test_negative_eigenvalues_keep_a_width():
    x0 = ms.sphere.equispaced(400)
    end = run(N, x0, 256.0, 40.0)
    assert float((end.points[:, 1] ** 2).mean()) == pytest.approx(0.003925999949596281, abs=1e-6)
    assert float(wasserstein(end, limit(N, x0))) == pytest.approx(0.06274984804832401, abs=1e-5)


@pytest.mark.slow
def test_two_thousand_tokens():
    x0 = ms.sphere.equispaced(2000)
    path = ms.solve(ms.SelfAttention(G, beta=256.0), x0, t=4.0, times=[0.0, 2.0, 4.0], rtol=1e-8, atol=1e-10)
    for i, expected in ((1, 0.4005236), (2, 0.1601335)):
        assert float(wasserstein(path.measure(i), limit(G, x0))) == pytest.approx(expected, abs=1e-6)


def test_nonsymmetric_distance_lies_below_the_coupling():
    from scipy.optimize import linear_sum_assignment

    from metastable.theory import distance_to_limit, zero_temperature

    rng = np.random.default_rng(3)
    S = rng.normal(size=(3, 3))
    w = ms.AttentionWeights(V=S @ np.diag([2.0, 0.5, -1.0]) @ np.linalg.inv(S), B=np.eye(3))
    x0 = ms.sphere.uniform(80, 3, seed=1)
    x, target = zero_temperature(w, x0, 0.4), limit_map(w)(x0)
    cost = (torch.cdist(x, target) ** 2).numpy()
    exact = math.sqrt(cost[linear_sum_assignment(cost)].mean())
    assert distance_to_limit(w, x0, 0.4) == pytest.approx(exact, abs=1e-9)
    assert distance_to_limit(w, x0, 0.4) < coupling_to_limit(w, x0, 0.4)
