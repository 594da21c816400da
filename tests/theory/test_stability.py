import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.theory import zero_temperature
from metastable.theory.stability import (
    accumulated_bound,
    growth_constant,
    highest,
    jacobian,
    optimal_time,
    posteriori_bound,
    synchronous_distance,
)


def random_weights(seed, d):
    rng = np.random.default_rng(seed)
    return ms.AttentionWeights(V=rng.normal(size=(d, d)), B=np.eye(d) + 0.3 * rng.normal(size=(d, d)))


def test_jacobian_by_finite_differences():
    w = random_weights(0, 3)
    flow = ms.ZeroTemperature(w)
    x = ms.sphere.uniform(1, 3, seed=1)
    J, h = jacobian(w, x)[0], 1e-6
    mass = torch.ones(1, dtype=torch.float64)
    for v in torch.linalg.svd(x)[2][1:]:
        difference = flow.velocity(0.0, ms.sphere.normalize(x + h * v), mass) - flow.velocity(
            0.0, ms.sphere.normalize(x - h * v), mass
        )
        slope = ms.sphere.project_tangent(x, difference / (2 * h))[0]
        assert torch.allclose(J @ v, slope, atol=1e-6)
    assert torch.allclose(J @ x[0], torch.zeros(3, dtype=torch.float64), atol=1e-12)


def test_growth_constant_is_the_spread_for_identity_scores():
    # S1: sharp for symmetric M and B = I
    w = ms.AttentionWeights(V=np.diag([1.2, 0.1, -0.7]), B=np.eye(3))
    assert growth_constant(w) == pytest.approx(1.9, rel=1e-6)


@pytest.mark.parametrize(("seed", "d"), [(1, 2), (2, 3), (3, 5)])
def test_neighbouring_orbits_separate_no_faster(seed, d):
    w = random_weights(seed, d)
    L0 = growth_constant(w)
    x = ms.sphere.uniform(300, d, seed=seed)
    y = ms.sphere.normalize(x + 1e-3 * ms.sphere.uniform(300, d, seed=seed + 1))
    before = ms.sphere.geodesic_distance(x, y)
    worst = 0.0
    for t in (0.1, 0.5, 1.0):
        after = ms.sphere.geodesic_distance(zero_temperature(w, x, t), zero_temperature(w, y, t))
        worst = max(worst, float((after / before).max().log()) / t)
    assert worst <= L0 * (1 + 1e-6)
    assert worst >= 0.5 * L0  # the constant is attained somewhere, so it must not be twice too large


def test_accumulated_bound_is_the_integral():
    times = np.linspace(0, 2, 2001)
    bound = accumulated_bound(times, np.cos(times), 0.7)
    # int_0^t e^{a(t-s)} cos s ds = (a e^{at} - a cos t + sin t)/(1+a^2)
    a = 0.7
    exact = (a * np.exp(a * times) - a * np.cos(times) + np.sin(times)) / (1 + a * a)
    assert np.allclose(bound.numpy(), exact, atol=1e-6)
    assert np.allclose(accumulated_bound(times, 1 + 0 * times, 0.0).numpy(), times, atol=1e-12)
    with pytest.raises(InvalidInput, match="increase"):
        accumulated_bound([0.0, 0.0], [1.0, 1.0], 1.0)


@pytest.mark.parametrize("beta", [20.0, 80.0])
def test_posteriori_bound_holds_and_is_not_absurd(beta):
    rng = np.random.default_rng(5)
    B = np.eye(3) + 0.2 * rng.normal(size=(3, 3))
    w = ms.AttentionWeights(V=np.diag([1.0, 0.2, -0.4]) @ np.linalg.inv(B.T), B=B)
    x0 = ms.sphere.fibonacci(600)
    times = np.linspace(0, 2, 41)
    path = ms.solve(ms.SelfAttention(w, beta=beta), x0, t=2.0, times=times)
    result = posteriori_bound(w, beta, path)
    zero = zero_temperature(w, x0, times)
    ratios = []
    for i in range(1, len(times)):
        measured = synchronous_distance(path.measure(i), ms.Measure(zero[i]))
        assert measured <= float(result.bound[i]) * (1 + 1e-6) + 1e-9
        ratios.append(measured / float(result.bound[i]))
    assert ratios[0] > 0.8 and ratios[-1] > 0.05


def test_optimal_time_is_the_minimum_of_the_theorem():
    beta, C, c = 1e4, 1.5, 0.5
    T, error = optimal_time(beta, C, c)
    assert error == pytest.approx(math.exp(-c * T))
    assert math.sqrt(math.log1p(beta) / beta) * math.exp(C * T) == pytest.approx(error)
    with pytest.raises(InvalidInput):
        optimal_time(0.0, 1.0, 1.0)


def test_rare_frames_can_miss_the_defect():
    # why the docstring asks for more saved times: the largest defect may lie between two of them
    coarse = accumulated_bound([0.0, 2.0], [0.1, 0.1], 0.5, upper=True)
    fine = accumulated_bound([0.0, 1.0, 2.0], [0.1, 0.9, 0.1], 0.5, upper=True)
    assert float(fine[-1]) > float(coarse[-1])


def test_the_highest_value_between_saved_times():
    # exact for a parabola whose top lies between two times, with as much again in reserve
    t = np.linspace(0.0, 1.0, 6)
    values = -((t - 0.5) ** 2)
    top = highest(values)
    assert len(top) == 5 and float(top[2]) >= 0.0 and float(top[2]) == pytest.approx(0.01, abs=1e-12)
    for f in (np.sin, np.cos, lambda x: np.exp(-3 * x)):
        t = np.linspace(0.0, 4.0, 21)
        fine = f(np.linspace(0.0, 4.0, 2001)).reshape(-1)
        assert all(fine[100 * i : 100 * i + 101].max() <= top + 1e-12 for i, top in enumerate(highest(f(t))))


def test_shapes_that_cannot_be_paired_are_one_sentence():
    with pytest.raises(InvalidInput, match=r"shapes \(2, 3\) and \(1, 3\)"):
        synchronous_distance(ms.Measure(ms.sphere.uniform(2, 3)), ms.Measure(ms.sphere.uniform(1, 3)))
    w = ms.AttentionWeights(V=np.eye(2), B=np.eye(2))
    flow = ms.SelfAttention(ms.AttentionWeights(V=np.eye(3), B=np.eye(3)), beta=1.0)
    path = ms.solve(flow, ms.sphere.uniform(4, 3), t=0.1, times=[0.0, 0.1])
    with pytest.raises(InvalidInput, match="the path has dimension 3 but the weights have dimension 2"):
        posteriori_bound(w, 1.0, path)
