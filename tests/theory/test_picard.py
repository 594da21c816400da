import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import NotDefined
from metastable.papers.concentration.families import plain, sheared
from metastable.theory import forecast
from metastable.theory.picard import SAMPLE, Prediction

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
    assert fine.values[: 2 * len(whole.values) : 2] == pytest.approx(whole.values, rel=1e-5)


def test_at_low_temperature_both_iterations_are_the_zero_temperature_crowd():
    rho = ms.Measure(ms.sphere.equispaced(SAMPLE))
    gaps = []
    for beta in (40.0, 80.0):
        p = Prediction(plain(), beta, rho)
        p.extend(0.5)
        gaps.append(abs(p.values[-1] - p.zero_temperature[-1]))
        assert abs(p.values[-1] - p.one_iteration[-1]) < gaps[-1]  # the second changes less than the first
        exact = ms.theory.distance_to_limit(plain(), rho, p.times)
        assert p.zero_temperature == pytest.approx(exact.tolist(), abs=1e-10)
    assert gaps[0] / gaps[1] == pytest.approx(2.0, rel=0.2)  # first order in 1/beta


def test_tokens_without_a_limit_are_refused():
    with pytest.raises(NotDefined, match="every token lies in the exceptional set"):
        Prediction(plain(), 8.0, ms.Measure(torch.tensor(np.array([[0.0, 1.0]]))))
