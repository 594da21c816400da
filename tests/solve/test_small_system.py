"""One small system: the compiled step is the step of the flow itself."""

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.solve import embedded
from metastable.solve.adaptive import Adaptive
from metastable.solve.dop853 import Dop853
from metastable.solve.problem import Problem, State
from metastable.solve.small_system import MOST_TOKENS, SmallSystem, small_system


def attention(d: int, beta: float, **options) -> ms.SelfAttention:
    rng = np.random.default_rng(d)
    w = ms.AttentionWeights(V=rng.standard_normal((d, d)), B=rng.standard_normal((d, d)))
    return ms.SelfAttention(w, beta, **options)


def problem_of(flow, rho: ms.Measure) -> Problem:
    return Problem(flow, rho.mass, 1e-8, 1e-10, None, np.inf)


@pytest.mark.parametrize("method", ["adaptive", "dop853"])
@pytest.mark.parametrize("d", [2, 3])
def test_runs_are_those_of_steps_made_stage_by_stage(method, d, monkeypatch):
    """Frames inside steps, events and the end; the stages are summed in another order, which rounding shows.

    Estimates of errors are differences, in which it shows more: after some thirty steps these are not of one length
    any more, and agree to the tolerance alone.
    """
    flow, mass = attention(d, 8.0), np.linspace(1.0, 2.0, 40)
    rho = ms.Measure(ms.sphere.uniform(40, d, seed=1), mass)
    event = ms.Event(lambda points, mass: points[0] @ points[1], 0.3 * d)
    runs = []
    for made in (small_system, lambda *_: None):
        monkeypatch.setattr(embedded, "small_system", made)
        runs.append(ms.solve(flow, rho, 1.5, times=np.linspace(0, 1.5, 50), method=method, events=[event]))
    fast, plain = runs
    assert float((fast.points - plain.points).abs().max()) < 1e-11
    assert fast.events
    assert [hit.time for hit in fast.events] == pytest.approx([hit.time for hit in plain.events], abs=1e-10)
    counts = [run.provenance["statistics"] for run in runs]
    assert counts[0]["accepted_steps"] == counts[1]["accepted_steps"]


def test_the_same_digits_after_an_interruption(tmp_path):
    flow, rho = attention(2, 16.0), ms.Measure(ms.sphere.uniform(60, 2, seed=2))
    whole = ms.solve(flow, rho, 4.0, times=[1.0, 4.0])
    part = ms.solve(flow, rho, 4.0, times=[1.0, 4.0], out=tmp_path / "run.zarr")
    assert torch.equal(whole.points, part.points)


@pytest.mark.parametrize("pair", [Adaptive(), Dop853()])
def test_what_is_left_to_the_flow(pair):
    few = ms.Measure(ms.sphere.uniform(5, 3, seed=0))

    def taken(flow, rho=few) -> bool:
        return small_system(problem_of(flow, rho), rho.points, pair) is not None

    assert taken(attention(3, 2.0))
    assert taken(ms.MultiHead([attention(3, 2.0), attention(3, 1.0)]))
    assert not taken(attention(3, 2.0, kernel="dense"))
    assert not taken(ms.MultiHead([attention(3, 2.0), attention(3, 1.0, kernel="dense")]))
    assert not taken(ms.Causal(attention(3, 2.0)))
    assert not taken(attention(3, 2.0, field=[1.0, 0.0, 0.0]))
    assert not taken(attention(9, 2.0), ms.Measure(ms.sphere.uniform(5, 9, seed=0)))
    assert not taken(attention(3, 2.0), ms.Measure(ms.sphere.uniform(MOST_TOKENS + 1, 3, seed=0)))


def test_a_step_is_made_once_more_for_all_looks_inside_it(monkeypatch):
    made = []
    stages = SmallSystem.stages
    monkeypatch.setattr(SmallSystem, "stages", lambda self, *step: made.append(step) or stages(self, *step))
    rho, pair = ms.Measure(ms.sphere.uniform(6, 2, seed=0)), Dop853()
    problem = problem_of(attention(2, 1.0), rho)
    step = pair.advance(problem, pair.begin(problem, State(0.0, rho.points)), 1.0)
    first = step.interpolate([step.t / 3])[0]
    assert torch.equal(step.interpolate([step.t / 3, step.t / 2])[0], first) and len(made) == 1
