import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import SolveError
from metastable.measure import Ensemble
from metastable.solve.adaptive import Adaptive
from metastable.solve.many_steps import _next_times, after_rejection, growth
from metastable.solve.problem import next_time

EYE = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))


def test_the_controller_is_that_of_the_adaptive_method() -> None:
    rng = np.random.default_rng(0)
    errors, last = 10.0 ** rng.uniform(-14, 0, 50), 10.0 ** rng.uniform(-4, 0, 50)
    for rejected in (False, True):
        found = growth(errors, last, np.full(50, rejected))
        for e, before, g in zip(errors, last, found, strict=True):
            assert g == pytest.approx(Adaptive.controller.growth(float(e), float(before), rejected), rel=1e-14)
    tried = np.array([1.5, 32.0, 1e9, math.inf])
    assert after_rejection(tried).tolist() == pytest.approx(list(map(Adaptive.controller.after_rejection, tried)))


def test_times_end_at_the_target_as_in_a_single_run() -> None:
    rng = np.random.default_rng(1)
    for target in (1.0, 30.0, 1e-3):
        start, h = target * rng.random(200), target * 10.0 ** rng.uniform(-12, 0.5, 200)
        start[:20] = target - h[:20] * (1 + 1e-10)
        found = _next_times(start, h, target)
        assert found.tolist() == [next_time(float(a), float(b), target) for a, b in zip(start, h, strict=True)]


def test_a_settled_system_makes_few_steps() -> None:
    clustered = torch.tensor([[1.0, 0.0]] * 8, dtype=torch.float64)
    spread = ms.sphere.uniform(8, 2, seed=0)
    path = ms.solve(ms.SelfAttention(EYE, 4.0), Ensemble(torch.stack([clustered, spread])), 30.0)
    few, many = path.provenance["statistics"]["steps_of_systems"]
    assert few < 45 < many  # steps of 2.5 / 2 at most, after the first ones


def test_too_many_steps_name_the_system() -> None:
    with pytest.raises(SolveError, match="system 0"):
        ms.solve(ms.SelfAttention(EYE, 4.0), Ensemble(ms.sphere.uniform(8, 2, seed=0)[None]), 30.0, max_steps=3)


def test_a_field_that_is_not_finite_names_the_system() -> None:
    class Broken(ms.Flow):
        d = 2

        def drift(self, t, points, mass):
            return points.flip(1) * (math.nan if float(points[0, 0]) < 0 else 1.0)

    many = Ensemble([[[1.0, 0.1]], [[-1.0, 0.1]]])
    with pytest.raises(SolveError, match="token 0 of system 1"):
        ms.solve(Broken(), many, 1.0)
