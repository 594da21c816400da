import numpy as np
import pytest
import torch

import metastable as ms
from metastable.measure import Ensemble
from metastable.solve.many_steps import _compiled, _trial, begin, compiled_trial
from metastable.solve.problem import Problem
from metastable.solve.systems import Systems


def weights(d: int, seed: int) -> ms.AttentionWeights:
    g = torch.Generator().manual_seed(seed)
    return ms.AttentionWeights(V=torch.randn(d, d, generator=g).double(), B=torch.randn(d, d, generator=g).double())


@pytest.mark.parametrize(
    ("d", "make"),
    [
        (2, lambda w, beta: ms.SelfAttention(w, beta)),
        (3, lambda w, beta: ms.SelfAttention(w, beta)),
        (5, lambda w, beta: ms.SelfAttention(w, beta)),
        (2, lambda w, beta: ms.EuclideanAttention(w, beta)),
        (3, lambda w, beta: ms.UnnormalizedAttention(w, beta / 10)),
        (2, lambda w, beta: ms.MultiHead([ms.SelfAttention(w, beta), ms.UnnormalizedAttention(w, 0.3)], "mean")),
    ],
)
def test_compiled_steps_are_those_of_the_flow_itself(d: int, make) -> None:
    g = torch.Generator().manual_seed(d)
    points = torch.randn(6, 5, d, dtype=torch.float64, generator=g)
    mass = torch.rand(6, 5, dtype=torch.float64, generator=g)
    mass[1, 2], mass[2, 0] = 0.0, 1e-200
    beta = torch.tensor([0.0, 0.5, 3.0, 20.0, 700.0, 2.0])
    flow = make(weights(d, seed=7), beta)
    many = Ensemble(points, mass, sphere=flow.spherical)
    problem = Problem(flow, many.mass, 1e-8, 1e-10, None, 1.0)
    systems = begin(problem, Systems.at_rest(many.points.clone(), 0.0))
    which, h = np.array([5, 1, 2, 3, 4]), np.array([0.05, 0.1, 0.02, 0.01, 1e-4])
    compiled = compiled_trial(problem, systems)
    assert compiled is not None
    found = _compiled(compiled, problem, systems, which, h, np.ones(5, dtype=bool))
    expected = _trial(problem, systems, which, np.zeros(5), h)
    for name in ("points", "slope", "before", "stages"):
        a, b = getattr(found, name), getattr(expected, name)
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12 * float(b.abs().max())), name
    assert np.allclose(found.rate, expected.rate, rtol=1e-11)
    assert np.allclose(found.error, expected.error, rtol=1e-3, atol=1e-3 * expected.error.max() + 1e-4)


def test_single_precision_and_high_dimensions_are_left_to_the_flow() -> None:
    for many in (Ensemble(torch.ones(2, 3, 2), dtype=torch.float32), Ensemble(torch.ones(2, 3, 9))):
        flow = ms.SelfAttention(weights(many.d, seed=0), 1.0)
        problem = Problem(flow, many.mass, 1e-8, 1e-10, None, 1.0)
        assert compiled_trial(problem, Systems.at_rest(many.points, 0.0)) is None
