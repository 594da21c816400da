"""Steps in the order of a curve: those of stage by stage to the tolerance, and what is left to the flow."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.attention.sphere import plan
from metastable.solve import embedded
from metastable.solve.adaptive import Adaptive
from metastable.solve.dop853 import Dop853
from metastable.solve.problem import Problem
from metastable.solve.sorted_trial import sorted_trial


def attention(d: int, beta: float, **options) -> ms.SelfAttention:
    rng = np.random.default_rng(d)
    V, B = (np.eye(d) + 0.2 * rng.standard_normal((d, d)) for _ in range(2))
    return ms.SelfAttention(ms.AttentionWeights(V=V, B=B), beta, **options)


@pytest.mark.parametrize(("d", "beta", "equal"), [(2, 0.5, True), (2, 300.0, False), (3, 300.0, False)])
def test_runs_are_those_of_steps_made_stage_by_stage(d, beta, equal, monkeypatch):
    """Frames inside steps and the end; 1003 tokens, which are no multiple of eight."""
    n = 1003
    flow, mass = attention(d, beta), None if equal else np.linspace(1.0, 2.0, n)
    rho = ms.Measure(ms.sphere.uniform(n, d, seed=1), mass)
    runs = []
    for made in (sorted_trial, lambda *_: None):
        monkeypatch.setattr(embedded, "sorted_trial", made)
        runs.append(ms.solve(flow, rho, 0.3, times=np.linspace(0, 0.3, 4), rtol=1e-6, atol=1e-8))
    fast, plain = runs
    assert float((fast.points - plain.points).abs().max()) < 1e-8
    assert fast.provenance["statistics"] == plain.provenance["statistics"]
    assert (fast.provenance["attention"]["largest_error"] or 0.0) <= 1.01e-8


def test_a_run_that_is_taken_up_again_makes_the_same_steps():
    flow, rho = attention(3, 60.0), ms.Measure(ms.sphere.uniform(1001, 3, seed=2))
    whole = ms.solve(flow, rho, 0.2, times=[0.1, 0.2], rtol=1e-5)
    parts = ms.solve(flow, rho, 0.1, rtol=1e-5).extend(0.2)
    assert float((whole.end.points - parts.end.points).abs().max()) < 1e-5
    again = ms.solve(flow, rho, 0.2, times=[0.1, 0.2], rtol=1e-5)
    assert torch.equal(whole.points, again.points)


def test_grids_are_planned_once_for_a_step(monkeypatch):
    looked = []
    found = plan.sample
    monkeypatch.setattr(plan, "sample", lambda operands: looked.append(operands) or found(operands))
    flow, rho = attention(3, 30.0, rtol=1e-8), ms.Measure(ms.sphere.uniform(15_000, 3, seed=2))
    path = ms.solve(flow, rho, 0.1, rtol=1e-5)
    statistics = path.provenance["statistics"]
    assert "sphere_grid" in path.provenance["attention"]["kernels"]
    steps = statistics["accepted_steps"] + statistics["rejected_steps"]
    assert 0 < len(looked) <= steps + 4 < statistics["evaluations"]


@pytest.mark.parametrize("n", [1000, 15_000])
def test_a_step_that_leaves_all_numbers_has_an_infinite_error(n):
    flow, rho, pair = attention(3, 30.0, rtol=1e-8), ms.Measure(ms.sphere.uniform(n, 3, seed=2)), Dop853()
    problem, memory = Problem(flow, rho.mass, 1e-5, 1e-7, None, np.inf), pair._stage_memory(rho.points)
    trial = sorted_trial(problem, rho.points, memory, pair)
    slope = torch.full_like(rho.points, 1e300)
    memory[0] = slope
    assert trial(rho.points, slope, 1e300).error == np.inf


def test_what_is_left_to_the_flow():
    many = ms.Measure(ms.sphere.uniform(1000, 3, seed=0))

    def taken(flow, rho=many, pair=None) -> bool:
        pair = pair or Dop853()
        problem = Problem(flow, rho.mass, 1e-8, 1e-10, None, np.inf)
        return sorted_trial(problem, rho.points, pair._stage_memory(rho.points), pair) is not None

    assert taken(attention(3, 2.0, rtol=1e-8))
    assert not taken(attention(3, 2.0, rtol=None))
    assert not taken(attention(3, 2.0, rtol=1e-8), pair=Adaptive())
    assert not taken(attention(3, 2.0, rtol=1e-8, kernel="nearby"))
    assert not taken(attention(3, 2.0, rtol=1e-8, field=np.ones(3)))
    assert not taken(attention(4, 2.0, rtol=1e-8), ms.Measure(ms.sphere.uniform(1000, 4, seed=0)))
    assert not taken(attention(3, 2.0, rtol=1e-8), ms.Measure(ms.sphere.uniform(900, 3, seed=0)))
    unseen = ms.Measure(many.points, np.arange(1000.0))
    assert not taken(attention(3, 2.0, rtol=1e-8), unseen)
