import math
import warnings

import numpy as np
import pytest
import torch
from scipy import integrate, special
from scipy.optimize import linear_sum_assignment

import metastable as ms
from metastable.errors import InvalidInput, NotDefined
from metastable.theory import (
    ExceptionalTokens,
    comoving_target,
    coupling_to_limit,
    distance_to_limit,
    limit,
    limit_map,
    zero_temperature,
)

I2 = np.eye(2)


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
    with pytest.raises(InvalidInput, match="invertible B"):
        limit_map(ms.AttentionWeights(V=I2, B=np.diag([1.0, 0.0])))
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
        * integrate.quad(
            lambda p, j=j: cost(math.sin(p)) ** j * math.sin(p) ** (k - 1) * math.cos(p) ** (d - k - 1),
            0,
            math.pi / 2,
        )[0]
        for j in (1, 2)
    ]
    sigma = math.sqrt((moment[1] - moment[0] ** 2) / 10000)
    assert abs(distance_to_limit(w, x0, 1.5) ** 2 - moment[0]) < 4 * sigma
