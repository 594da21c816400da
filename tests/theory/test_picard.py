import itertools

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import NotDefined
from metastable.papers.concentration.families import plain, sheared
from metastable.theory import forecast
from metastable.theory.picard import SAMPLE, Prediction, distance_from

G = sheared(0.5)


def test_sampled_prediction_reproduces_the_mean_field():
    # R9: mean field, G(.5), uniform, beta = 64; 512 of 2000 equispaced tokens are followed
    f = forecast(G, 64.0, ms.sphere.equispaced(2000), deterministic=True)
    curve = f.curve([0.0, 1.0, 2.0, 3.0])
    assert curve[1:].tolist() == pytest.approx([0.5993592086, 0.3916965025, 0.248758843], rel=0.01)
    # and it is better than zero temperature, which is 4.6% off at t = 3
    assert float(curve[3]) == f.curve(3.0)
    assert abs(f.zero_temperature_curve(3.0) - 0.248758843) > 0.01


def test_steps_are_small_enough_and_pieces_do_not_show():
    rho = ms.Measure(ms.sphere.uniform(100, 2, seed=2))
    whole, pieces, fine = (Prediction(G, 32.0, rho) for _ in range(3))
    whole.extend(1.0)
    for t in (0.1, 0.35, 1.0):
        pieces.extend(t)
    assert pieces.times == pytest.approx(whole.times, abs=1e-14)
    assert pieces.values == pytest.approx(whole.values, rel=1e-12)
    fine.step /= 2
    fine.extend(whole.times[-1])
    both = min(len(whole.values), (len(fine.values) + 1) // 2)
    assert fine.values[: 2 * both : 2] == pytest.approx(whole.values[:both], rel=1e-5)


def test_at_low_temperature_all_iterations_are_the_zero_temperature_crowd():
    rho = ms.Measure(ms.sphere.equispaced(SAMPLE))
    gaps = []
    for beta in (40.0, 80.0):
        p = Prediction(plain(), beta, rho)
        p.extend(0.5)
        gaps.append(abs(p.values[-1] - p.zero_temperature[-1]))
        _, first, second, third = p.iterates[-1]
        assert abs(second - first) < gaps[-1] and abs(third - second) < 0.5 * abs(second - first)
        exact = ms.theory.distance_to_limit(plain(), rho, p.times)
        assert p.zero_temperature == pytest.approx(exact.tolist(), abs=1e-10)
    assert gaps[0] / gaps[1] == pytest.approx(2.0, rel=0.2)  # first order in 1/beta


def test_iterations_converge_to_the_run():
    rho = ms.Measure(ms.sphere.uniform(150, 2, seed=5))
    p = Prediction(G, 24.0, rho)
    p.extend(1.5)
    path = ms.solve(ms.SelfAttention(G, beta=24.0), rho, t=p.times[-1])
    errors = [float((x - path.end.points).square().sum(1).mean().sqrt()) for x in p.states]
    # rms 0.264, 0.156, 0.079, 0.033: each iteration gains more than the one before
    gains = [a / b for a, b in itertools.pairwise(errors)]
    assert gains[0] > 1.5 and gains == sorted(gains)


def test_a_sample_of_the_crowd_feels_the_reaction_of_all():
    # of 900 tokens 512 are followed: W2 at zero temperature and of the iterations is off by -38, -31, -14, -11%
    rho = ms.Measure(ms.sphere.uniform(900, 2, seed=3))
    p = Prediction(G, 20.0, rho)
    p.extend(3.0)
    path = ms.solve(ms.SelfAttention(G, beta=20.0), rho, t=p.times[-1])
    W = distance_from(p.pi, rho.points, rho.mass)(path.end.points)
    off = [abs(value - W) for value in p.iterates[-1]]
    assert not p.follows_all and off == sorted(off, reverse=True) and off[-1] < 0.5 * off[1]


def test_distance_is_the_transport_distance():
    for M, n in ((np.diag([2.0, 1.0, 0.5]), 60), (np.diag([2.0, 2.0, 0.5]), 40), ([[2.0, 0.4], [0.0, 1.0]], 80)):
        d = len(M)
        w, rho = ms.AttentionWeights(V=M, B=np.eye(d)), ms.Measure(ms.sphere.uniform(n, d, seed=1))
        found = distance_from(ms.theory.limit_map(w), rho.points, rho.mass)(rho.points)
        assert found == pytest.approx(float(ms.wasserstein(rho, ms.theory.limit(w, rho))), rel=1e-9)


def test_tokens_without_a_limit_are_refused():
    with pytest.raises(NotDefined, match="every token lies in the exceptional set"):
        Prediction(plain(), 8.0, ms.Measure(torch.tensor(np.array([[0.0, 1.0]]))))
