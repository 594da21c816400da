"""The step as launches: the same step, and on a card the same digits from a graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import metastable as ms
from attention.gpu.problems import cuda
from metastable.solve import recorded_trial
from metastable.solve.dop853 import DAMPING, Dop853
from metastable.solve.problem import Problem, State
from metastable.solve.recorded_trial import AFTER, RecordedTrial


def flow_of(d: int, beta: float = 6.0) -> ms.SelfAttention:
    B = np.eye(d) + 0.3 * np.random.default_rng(d).standard_normal((d, d)) / np.sqrt(d)
    return ms.SelfAttention(ms.AttentionWeights(V=B.T, B=B), beta)


def test_launch_by_launch_it_is_the_step_of_the_pair():
    flow, rho = flow_of(3), ms.Measure(ms.sphere.uniform(20, 3, seed=1))
    problem = Problem(flow, rho.mass, 1e-8, 1e-9, None, np.inf)
    pair = Dop853()
    state = pair.begin(problem, State(0.0, rho.points, step=0.05))
    step = pair.advance(problem, state, 0.05)
    memory = torch.zeros(len(pair.nodes) + 1, 20, 3, dtype=torch.float64)
    memory[0] = state.slope

    def field(x: torch.Tensor) -> torch.Tensor:
        return flow.evaluate(0.0, x, rho.mass, unit=True).vector

    trial = RecordedTrial(field, memory, (*pair.stages, pair.weights), pair.errors, DAMPING, 0.1 * 1.1e-8)
    trial.start.copy_(rho.points)
    trial.h.fill_(0.05)
    trial.launch()
    torch.testing.assert_close(trial.points, step.points, rtol=0, atol=1e-15)
    torch.testing.assert_close(memory[-1], field(trial.points), rtol=0, atol=0)
    error = pair.error(problem, rho.points, trial.points, torch.cat([memory, memory[:3]]), 0.05)
    assert float(trial.error) / trial.allowed == pytest.approx(error, rel=1e-6)


@cuda
@pytest.mark.parametrize(("n", "d", "rtol"), [(3000, 2, 1e-8), (3000, 3, 1e-6), (1000, 64, 1e-6), (2000, 5, 1e-3)])
def test_a_recorded_run_has_the_digits_of_one_that_is_not(n, d, rtol, monkeypatch):
    rho = ms.Measure(ms.sphere.uniform(n, d, seed=2)).to(device="cuda")
    runs = []
    for most in (0.0, 2e10):
        monkeypatch.setattr(recorded_trial, "MOST_PAIRS", most)
        runs.append(ms.solve(flow_of(d), rho, 2.0, times=[0.3, 1.1, 2.0], rtol=rtol, atol=rtol / 10))
    eager, recorded = runs
    assert float((eager.points - recorded.points).abs().max()) < max(1e-12, 1e-2 * rtol)
    accepted = [run.provenance["statistics"]["accepted_steps"] for run in runs]
    assert accepted[0] == accepted[1] > AFTER


@cuda
def test_a_recorded_run_repeats_to_the_last_digit():
    rho = ms.Measure(ms.sphere.uniform(2000, 3, seed=3)).to(device="cuda")
    whole = ms.solve(flow_of(3), rho, 2.0, times=[1.0, 2.0])
    again = ms.solve(flow_of(3), rho, 2.0, times=[1.0, 2.0])
    assert torch.equal(whole.points, again.points)


@cuda
def test_many_recorded_steps_end_where_steps_of_the_host_do(monkeypatch):
    """Tokens of a cap gather in a point, which forgets nothing but rounding."""
    pole = torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64)
    rho = ms.Measure(ms.sphere.uniform(1500, 3, seed=4) + 1.2 * pole).to(device="cuda")
    flow = ms.SelfAttention(ms.AttentionWeights(V=np.eye(3), B=np.eye(3)), 20.0)
    runs = []
    for most in (0.0, 2e10):
        monkeypatch.setattr(recorded_trial, "MOST_PAIRS", most)
        runs.append(ms.solve(flow, rho, 12.0, times=12, rtol=1e-10, atol=1e-12))
    assert runs[1].provenance["statistics"]["accepted_steps"] > 20
    assert float((runs[0].points - runs[1].points).abs().max()) < 1e-9
