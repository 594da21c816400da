import numpy as np
import pytest
import torch

import metastable as ms
from metastable.measure import Ensemble
from metastable.solve.adaptive import Adaptive
from metastable.solve.dop853 import Dop853
from metastable.solve.many_steps import _compiled, _trial, begin, compiled_trial
from metastable.solve.problem import Problem
from metastable.solve.systems import Systems
from metastable.solve.tableau import Tableau


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
@pytest.mark.parametrize("method", [Adaptive(), Dop853()])
def test_compiled_steps_are_those_of_the_flow_itself(d: int, make, method) -> None:
    g = torch.Generator().manual_seed(d)
    points = torch.randn(6, 5, d, dtype=torch.float64, generator=g)
    mass = torch.rand(6, 5, dtype=torch.float64, generator=g)
    mass[1, 2], mass[2, 0] = 0.0, 1e-200
    beta = torch.tensor([0.0, 0.5, 3.0, 20.0, 700.0, 2.0])
    flow = make(weights(d, seed=7), beta)
    many = Ensemble(points, mass, sphere=flow.spherical)
    problem = Problem(flow, many.mass, 1e-8, 1e-10, None, 1.0)
    systems, pair = begin(problem, method, Systems.at_rest(many.points.clone(), 0.0)), Tableau.of(method)
    which, h = np.array([5, 1, 2, 3, 4]), np.array([0.05, 0.1, 0.02, 0.01, 1e-4])
    compiled = compiled_trial(problem, systems, pair)
    assert compiled is not None
    found = _compiled(compiled, problem, systems, which, h, np.ones(5, dtype=bool))
    expected = _trial(problem, pair, systems, which, np.zeros(5), h, inside=True)
    for name in ("points", "slope", "before", "stages"):
        a, b = getattr(found, name), getattr(expected, name)
        assert torch.allclose(a, b, rtol=1e-12, atol=1e-12 * float(b.abs().max())), name
    assert np.allclose(found.rate, expected.rate, rtol=1e-11)
    assert np.allclose(found.error, expected.error, rtol=1e-3, atol=1e-3 * expected.error.max() + 1e-4)


def test_single_precision_and_high_dimensions_are_left_to_the_flow() -> None:
    for many in (Ensemble(torch.ones(2, 3, 2), dtype=torch.float32), Ensemble(torch.ones(2, 3, 9))):
        flow = ms.SelfAttention(weights(many.d, seed=0), 1.0)
        problem = Problem(flow, many.mass, 1e-8, 1e-10, None, 1.0)
        assert compiled_trial(problem, Systems.at_rest(many.points, 0.0), Tableau.of(Adaptive())) is None


def test_a_rejected_step_of_order_8_spares_the_velocity_at_its_end() -> None:
    g = torch.Generator().manual_seed(3)
    many = Ensemble(torch.randn(3, 6, 3, dtype=torch.float64, generator=g))
    problem = Problem(ms.SelfAttention(weights(3, seed=7), 20.0), many.mass, 1e-8, 1e-10, None, 1.0)
    which, h, unseen = np.arange(3), np.array([1e-3, 1.0, 2.0]), np.zeros(3, dtype=bool)
    for method, spared in ((Dop853(), 2), (Adaptive(), 0)):
        systems, pair = begin(problem, method, Systems.at_rest(many.points.clone(), 0.0)), Tableau.of(method)
        compiled = compiled_trial(problem, systems, pair)
        assert compiled is not None
        found = _compiled(compiled, problem, systems, which, h, unseen)
        expected = _trial(problem, pair, systems, which, np.zeros(3), h, inside=False)
        assert (expected.error > 1.0).tolist() == [False, True, True]
        assert np.allclose(found.error, expected.error, rtol=1e-6, atol=1e-4)
        assert torch.allclose(found.slope[0], expected.slope[0], rtol=1e-12, atol=1e-12)
        assert compiled.evaluations(found.error, unseen) == 3 * pair.end - spared
        seen = np.array([True, True, False])  # what is looked at inside is made to the end
        assert compiled.evaluations(found.error, seen) == 3 * pair.end - spared // 2
