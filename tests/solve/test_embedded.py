"""What the embedded pairs share: exact first stages, evaluations that are needed, and those that only look."""

import math

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.solve.adaptive import Adaptive
from metastable.solve.controller import STRETCH
from metastable.solve.dop853 import Dop853
from metastable.solve.problem import Problem, State
from small_runs import smooth_case

PAIRS = (Adaptive, Dop853)


def one_step(pair, limit=10.0, h=0.05, max_step=0.05):
    flow, rho = smooth_case()
    flow.kernel = "fused"  # asked for by its name, so that the steps are made stage by stage
    problem, stepper = Problem(flow, rho.mass, rtol=1e9, atol=1e9, step=None, max_step=max_step), pair()
    return problem, stepper.advance(problem, stepper.begin(problem, State(0.0, rho.points, step=h)), limit)


@pytest.mark.parametrize("pair", PAIRS)
def test_the_velocity_at_the_end_is_the_first_stage_of_the_next_step(pair):
    problem, step = one_step(pair)
    assert torch.equal(step.end.slope, problem.velocity(step.t, step.points).vector)


@pytest.mark.parametrize(("pair", "evaluations"), [(Adaptive, 1 + 6), (Dop853, 1 + 12)])
def test_looking_between_the_steps_is_not_counted(pair, evaluations):
    problem, step = one_step(pair)
    assert problem.evaluations == evaluations
    first = step.interpolate([0.02, 0.03])
    assert problem.evaluations == evaluations
    assert all(torch.equal(a, b) for a, b in zip(first, step.interpolate([0.02, 0.03]), strict=True))


@pytest.mark.parametrize("pair", PAIRS)
def test_the_interpolant_meets_both_ends(pair):
    """Also in the last step of a run, whose last velocity dop853 only computes to look inside."""
    for limit in (10.0, 0.05):
        _, step = one_step(pair, limit)
        begin, end = step.interpolate([0.0, step.t])
        assert (begin - step.start.points).abs().max() < 1e-15
        assert (end - step.points).abs().max() < 1e-14


def test_the_last_step_of_a_run_needs_no_velocity_at_its_end():
    problem, step = one_step(Dop853, 0.05)
    assert step.t == 0.05 and step.end.slope is None and problem.evaluations == 1 + 11


@pytest.mark.parametrize("pair", PAIRS)
def test_the_last_two_steps_are_of_one_size(pair):
    """A step and a short rest would cost as much, and the error of the step would be that of the run."""
    assert one_step(pair, limit=0.0501)[1].t == pytest.approx(0.0501 / 2, rel=1e-12)  # max_step holds
    assert one_step(pair, limit=0.0999)[1].t == pytest.approx(0.0999 / 2, rel=1e-12)
    for limit, end in ((0.1001, 0.05), (0.05, 0.05), (0.03, 0.03)):
        assert one_step(pair, limit)[1].t == pytest.approx(end, rel=1e-12)
    assert one_step(pair, limit=0.08)[1].tried == 0.08 and one_step(pair, limit=0.2)[1].tried == math.inf


@pytest.mark.parametrize("pair", PAIRS)
def test_a_step_that_nearly_reaches_the_end_is_stretched_to_it(pair):
    h = 0.05 / STRETCH
    for factor, steps in ((0.99, 1), (1.01, 2), (1.99, 2), (2.01, None)):
        limit = factor * STRETCH * h
        step = one_step(pair, limit, h, max_step=1.0)[1]
        assert step.t == pytest.approx(h if steps is None else limit / steps, rel=1e-12)
        assert step.tried == (math.inf if steps is None else limit)


@pytest.mark.parametrize("pair", PAIRS)
def test_a_step_that_is_asked_for_is_refused(pair):
    with pytest.raises(InvalidInput, match=f"method '{pair.name}' chooses its own steps; give max_step"):
        ms.solve(*smooth_case(), 1.0, method=pair(), step=0.1)


@pytest.mark.parametrize("pair", PAIRS)
def test_tables_are_no_part_of_what_identifies_a_run(pair):
    path = ms.solve(*smooth_case(), 0.1, method=pair())
    assert path.provenance["parameters"]["method"] == pair.name and "stepper" not in path.provenance["parameters"]


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("kernel", ["auto", "fused"])
def test_a_step_is_made_again_to_its_digits(pair, kernel):
    flow, rho = smooth_case()
    flow.kernel = kernel
    problem, stepper = Problem(flow, rho.mass, rtol=1e-6, atol=1e-6, step=None, max_step=0.1), pair()
    step = stepper.advance(problem, stepper.begin(problem, State(0.0, rho.points, step=0.05)), 10.0)
    assert torch.equal(pair().again(problem, State(0.0, rho.points), step.t), step.points)
