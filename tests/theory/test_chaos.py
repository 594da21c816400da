import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.meanfield import Uniform, nodes
from metastable.theory import clustering_time, context_spread, growth_rate, sampling_error
from metastable.theory.chaos import sampled_circle_distance, weight_derivative

STRETCH, TURN = np.diag([1.0, -1.0]), np.array([[0.0, -1.0], [1.0, 0.0]])


def test_the_constant_on_the_circle():
    assert context_spread(1.0, 2.0) ** 0.5 == pytest.approx(0.87108, abs=5e-6)
    modes = [2 * (math.expm1(0.7 * growth_rate(k, 9.0)) / k) ** 2 for k in range(1, 60)]
    assert context_spread(0.7, 9.0) == pytest.approx(sum(modes), rel=1e-12)


@pytest.mark.parametrize(("d", "beta"), [(2, 2.0), (3, 5.0), (4, 1.0), (8, 12.0), (50, 3.0), (3, 400.0)])
def test_at_first_the_token_moves_with_the_noise_of_the_attended_mean(d, beta):
    """X1 from X5: the spread over t^2 at t -> 0 is n times the squared error of the mean of n keys (L5)."""
    t = 1e-6
    assert context_spread(t, beta, d) / t**2 == pytest.approx(sampling_error(d, beta, 1) ** 2, rel=1e-5)


def test_without_attention_only_the_mean_of_the_context_counts():
    assert context_spread(1.0, 0.0, 5) == pytest.approx(5 * math.expm1(4 / 5) ** 2 / 4, rel=1e-12)


def test_many_times_at_once_and_times_beyond_numbers():
    many = context_spread([0.0, 0.5, 1.0], 3.0, 3)
    assert many.tolist() == [0.0, context_spread(0.5, 3.0, 3), context_spread(1.0, 3.0, 3)]
    assert context_spread(1e9, 3.0) == math.inf
    assert sampled_circle_distance([0.0, 1.0], 2.0, 10).shape == (2,)


@pytest.mark.parametrize(("d", "beta", "t"), [(2, 6.0, 0.8), (3, 2.0, 1.0), (4, 3.0, 0.6)])
def test_observers_of_sampled_contexts(d, beta, t):
    """z-test at four standard errors and the order 1/n, seed 3; observers have no mass: nothing sees them."""
    n, draws, observers = 128, 300, 8
    points = ms.sphere.uniform(draws * (n + observers), d, seed=3).view(draws, n + observers, d)
    mass = [1 / n] * n + [0.0] * observers
    flow = ms.SelfAttention(ms.AttentionWeights(V=np.eye(d), B=np.eye(d)), beta)
    path = ms.solve(flow, ms.Ensemble(points, mass), t=t, rtol=1e-4, atol=1e-4)
    moved = (path.points[1] - path.points[0])[:, n:].square().sum(2).mean(1) * n / context_spread(t, beta, d)
    assert abs(float(moved.mean()) - 1) < 4 * float(moved.std()) / math.sqrt(draws) + 5 / n


def derivative(points, mass, x, direction, t, beta, of):
    """Central difference of observers without mass among the given context."""
    d = x.shape[1]
    rho = ms.Measure(torch.cat([points, x]), torch.cat([mass, torch.zeros(len(x), dtype=mass.dtype)]))
    ends = []
    for h in (1e-4, -1e-4):
        changed = {"V": np.eye(d), "B": np.eye(d)} | {of: np.eye(d) + h * direction}
        flow = ms.SelfAttention(ms.AttentionWeights(**changed), beta)
        ends.append(ms.solve(flow, rho, t=t, rtol=1e-11, atol=1e-12).end.points[len(points) :])
    return (ends[0] - ends[1]) / 2e-4


@pytest.mark.parametrize("of", ["V", "B"])
@pytest.mark.parametrize("direction", [STRETCH, TURN, np.eye(2), np.array([[0.3, 1.2], [-0.4, 0.9]])])
def test_derivatives_by_the_weights_on_the_circle(of, direction):
    x = ms.sphere.from_angles([0.2, 0.7, 2.5])
    context = ms.Measure(ms.sphere.equispaced(256))
    found = derivative(context.points, context.mass, x, direction, 1.0, 2.0, of)
    assert torch.allclose(found, weight_derivative(x, direction, 1.0, 2.0, of), atol=2e-8)


@pytest.mark.parametrize("of", ["V", "B"])
def test_derivatives_by_the_weights_on_the_sphere(of):
    direction = np.array([[0.5, 0.2, -1.0], [0.7, -0.3, 0.4], [0.1, -0.6, 0.8]])
    context, x = nodes(Uniform(3), 3, 2000, kind="gauss"), ms.sphere.uniform(4, 3, seed=2)
    found = derivative(context.points, context.mass, x, direction, 0.8, 3.0, of)
    assert torch.allclose(found, weight_derivative(x, direction, 0.8, 3.0, of), atol=2e-8)


def test_golden_derivatives():
    quarter = ms.sphere.from_angles([math.pi / 4])
    assert float(weight_derivative(quarter, STRETCH, 1.0, 2.0).norm()) == pytest.approx(0.958432, abs=5e-7)
    assert float(weight_derivative(quarter, TURN, 1.0, 2.0).norm()) == pytest.approx(0.697775, abs=5e-7)
    assert float(weight_derivative(quarter, np.eye(2), 1.0, 2.0).norm()) == 0.0
    assert weight_derivative(quarter, STRETCH, 1.0, 0.0).norm() == 0


def test_points_on_a_circle_and_their_modes():
    """pi^2/(3n) for any n; later, z-test at four standard errors plus a tenth for the modes of finite size."""
    assert sampled_circle_distance(0.0, 5.0, 7) == pytest.approx(math.pi**2 / 21)
    n, draws, beta = 128, 300, 4.0
    assert 1.0 < 0.35 * clustering_time(n, beta) < 1.3
    points = ms.sphere.uniform(draws * n, 2, seed=1).view(draws, n, 2)
    flow = ms.SelfAttention(ms.AttentionWeights(V=np.eye(2), B=np.eye(2)), beta)
    ends = ms.solve(flow, ms.Ensemble(points), t=1.0, rtol=1e-4, atol=1e-4).points[1].numpy()
    angle = np.sort(np.arctan2(ends[..., 1], ends[..., 0]), axis=1)
    found = (angle - 2 * math.pi * np.arange(n) / n).var(axis=1) + (2 * math.pi / n) ** 2 / 12
    ratio = found / sampled_circle_distance(1.0, beta, n)
    assert abs(ratio.mean() - 1) < 4 * ratio.std() / math.sqrt(draws) + 0.1


@pytest.mark.parametrize(
    "call",
    [
        lambda: context_spread(-1.0, 2.0),
        lambda: context_spread(1.0, math.nan),
        lambda: context_spread(1.0, 2.0, 1),
        lambda: sampled_circle_distance(1.0, 2.0, 0),
        lambda: weight_derivative([[1.0, 0.0]], [1.0, 0.0], 1.0, 2.0),
        lambda: weight_derivative([[1.0, 0.0]], np.eye(3), 1.0, 2.0),
        lambda: weight_derivative([[1.0, 0.0]], [[math.nan, 0.0], [0.0, 1.0]], 1.0, 2.0),
        lambda: weight_derivative([[1.0, 0.0]], np.eye(2), 1.0, 2.0, of="K"),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(InvalidInput) as refused:
        call()
    assert len(str(refused.value)) < 200
