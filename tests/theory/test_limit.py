import math
import warnings

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, NotDefined
from metastable.papers.concentration.families import repelling, sheared
from metastable.theory import (
    ExceptionalTokens,
    comoving_target,
    distance_to_limit,
    limit,
    limit_map,
    zero_temperature,
)
from metastable.transport import wasserstein

I2 = np.eye(2)
B_R1 = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.2], [0.3, 0.0, 0.8]])
R1 = ms.AttentionWeights(V=np.diag([2.0, 1.0, 0.5]) @ np.linalg.inv(B_R1.T), B=B_R1)
G, N = sheared(0.5), repelling()


def symmetric_weights(seed, d, k=1):
    """M symmetric with a k-fold leading eigenvalue, B a random perturbation of I."""
    rng = np.random.default_rng(seed)
    Z = np.linalg.qr(rng.normal(size=(d, d)))[0]
    M = Z @ np.diag([2.0] * k + list(np.linspace(1.2, -1.0, d - k))) @ Z.T
    B = np.eye(d) + 0.3 * rng.normal(size=(d, d))
    return ms.AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)


@pytest.mark.parametrize(("d", "k"), [(2, 1), (3, 1), (3, 2), (5, 3)])
def test_limit_is_where_the_flow_goes_and_constant_along_orbits(d, k):
    w = symmetric_weights(d + k, d, k)
    x0 = ms.sphere.uniform(50, d, seed=1)
    pi = limit_map(w)
    assert torch.allclose(zero_temperature(w, x0, 80.0), pi(x0), atol=1e-9)
    assert torch.allclose(pi(zero_temperature(w, x0, 1.3)), pi(x0), atol=1e-11)


def test_oblique_limit_of_a_nonsymmetric_matrix():
    rng = np.random.default_rng(3)
    S = rng.normal(size=(3, 3))
    M = S @ np.diag([2.0, 0.5, -1.0]) @ np.linalg.inv(S)
    B = np.eye(3) + 0.2 * rng.normal(size=(3, 3))
    w = ms.AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)
    x0 = ms.sphere.uniform(400, 3, seed=2)
    assert torch.allclose(zero_temperature(w, x0, 25.0), limit_map(w)(x0), atol=1e-9)
    # the orthogonal projector would send part of the tokens to the wrong pole
    e = torch.from_numpy(S[:, 0] / np.linalg.norm(S[:, 0]))
    wrong = torch.sign(x0 @ e) != torch.sign(limit_map(w)(x0) @ e)
    assert 0 < int(wrong.sum()) < 400


def test_identity_is_the_identity():
    w = ms.AttentionWeights(V=I2, B=I2)
    x0 = ms.sphere.uniform(7, 2)
    assert torch.equal(limit_map(w)(x0), x0)
    assert torch.equal(limit(w, x0).points, x0)
    assert distance_to_limit(w, x0, 3.0) == 0


def test_exceptional_tokens_are_reported_and_not_placed():
    w = ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=I2)
    rho = ms.Measure([[0.0, 1.0], [1e-20, 1.0], [0.6, 0.8]], mass=[0.25, 0.25, 0.5])
    with pytest.warns(ExceptionalTokens, match=r"1 token.*rows 0"):
        image = limit_map(w)(rho.points)
    assert bool(torch.isnan(image[0]).all()) and image[1:].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    with pytest.warns(ExceptionalTokens, match=r"mass 0\.25"):
        mu = limit(w, rho)
    assert mu.n == 2 and mu.mass.tolist() == pytest.approx([1 / 3, 2 / 3])
    # a rotated basis leaves 1e-17 of the wrong sign: that is rounding, not a limit
    angle = 0.7
    R = np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
    turned = ms.AttentionWeights(V=R @ np.diag([2.0, 1.0]) @ R.T, B=I2)
    assert limit_map(turned).exceptional(torch.from_numpy(R[:, 1:].T)).tolist() == [True]
    with pytest.raises(NotDefined, match="every token"):
        limit(w, [[0.0, 1.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert distance_to_limit(w, [[0.0, 1.0]], 5.0) == pytest.approx(math.sqrt(2))


def test_no_limit_is_a_sentence():
    rotation = ms.AttentionWeights(V=[[1.0, -2.0], [2.0, 1.0]], B=I2)
    with pytest.raises(NotDefined, match="comoving_target"):
        limit_map(rotation)
    with pytest.raises(NotDefined, match="defective"):
        limit(ms.AttentionWeights(V=[[1.0, 1.0], [0.0, 1.0]], B=I2), [[0.6, 0.8]])
    with pytest.raises(NotDefined, match="B is singular"):
        limit_map(ms.AttentionWeights(V=-I2, B=np.diag([1.0, 0.0])))
    assert limit_map(ms.AttentionWeights(V=I2, B=np.diag([1.0, 0.0])))([[-0.6, 0.8]]).tolist() == [[-1.0, 0.0]]
    with pytest.raises(InvalidInput, match="not isolated"):
        limit_map(ms.AttentionWeights(V=np.diag([1.0, 1.0 - 3e-6]), B=I2))
    with pytest.raises(InvalidInput, match="dimension 3"):
        limit_map(ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=I2))([[1.0, 0.0, 0.0]])


def test_comoving_target_is_what_the_tokens_follow():
    M = np.array([[0.5, -2.0, 0.3], [1.0, 0.5, 0.1], [0.0, 0.0, -0.8]])
    B = np.eye(3) + 0.2 * np.random.default_rng(0).normal(size=(3, 3))
    w = ms.AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)
    x0 = ms.sphere.uniform(60, 3, seed=5)
    late = [20.0, 21.5, 25.0]
    assert torch.allclose(zero_temperature(w, x0, late), comoving_target(w, x0, late), atol=1e-6)
    static = symmetric_weights(1, 3)
    assert torch.allclose(comoving_target(static, x0, 2.0), limit_map(static)(x0), atol=1e-12)


def test_comoving_target_of_a_jordan_block():
    w = ms.AttentionWeights(V=[[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.2]], B=np.eye(3))
    x0 = ms.sphere.uniform(20, 3, seed=6)
    assert torch.allclose(zero_temperature(w, x0, 40.0), comoving_target(w, x0, 40.0), atol=1e-10)


# Reference numbers that engine, distances and limit must reproduce together (R1, R3-R5, R7, R8, R11).


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
