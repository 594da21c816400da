"""The loop over steps: what a run leaves behind, from its start or from where it stood."""

import torch

import metastable as ms
from metastable.solve.checkpoint import Checkpoint
from metastable.solve.frames import InMemory
from metastable.solve.integrate import integrate
from metastable.solve.methods import choose_stepper
from metastable.solve.problem import State
from metastable.solve.task import Task
from small_runs import flow, small_run


def a_task(t):
    rho = ms.Measure(ms.sphere.uniform(12, 2, seed=1))
    how = {
        "t0": 0.0, "t": t, "times": [0.0, t], "rtol": 1e-8, "atol": 1e-10, "step": None, "max_step": None,
        "n": 12, "d": 2, "dtype": "float64", "tokens": "",
    }  # fmt: skip
    return rho, Task.of(flow(), rho.mass, choose_stepper(flow(), "adaptive", None), (), how)


def test_the_state_before_the_last_steps_leads_to_the_same_end():
    rho, task = a_task(2.0)
    grid = torch.tensor(task.times, dtype=torch.float64)
    path = integrate(task, Checkpoint("", State(0.0, rho.points)), InMemory(grid, rho.points, rho.mass))
    assert torch.equal(path.end.points, small_run(method="adaptive").end.points)
    before = path.last_state()
    assert before.state.t < 2.0 and before.saved == 1
    # The last two steps are halves of what was left, or the last one alone was cut.
    assert path.provenance["statistics"]["accepted_steps"] - before.state.accepted in (1, 2)
    frames = InMemory(grid, rho.points, rho.mass)
    frames.frames[0] = rho.points
    again = integrate(task, before, frames)
    assert torch.equal(again.points, path.points)
    assert again.provenance["statistics"] == path.provenance["statistics"]


def test_a_run_of_no_time_is_its_start():
    rho, task = a_task(0.0)
    task.parameters["times"] = [0.0]
    grid = torch.zeros(1, dtype=torch.float64)
    path = integrate(task, Checkpoint("", State(0.0, rho.points)), InMemory(grid, rho.points, rho.mass))
    assert torch.equal(path.end.points, rho.points) and path.last_state().state.t == 0.0
