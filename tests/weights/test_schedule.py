"""Weights that depend on time."""

import math

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from small_runs import random_weights, weights


def test_breakpoints_are_sorted():
    assert ms.Schedule(lambda t: weights(), breakpoints=(1.5, 1.0, 1.5)).breakpoints == (1.0, 1.5)
    with pytest.raises(InvalidInput, match="breakpoints must be finite"):
        ms.Schedule(lambda t: weights(), breakpoints=(float("nan"),))


def test_layers_share_the_time_and_a_knot_belongs_to_the_layer_after_it():
    first, second = random_weights(0, 2), random_weights(1, 2)
    layers = ms.Schedule.layers([first, second], 2.0)
    assert layers.breakpoints == (1.0,) and layers.piecewise_constant
    assert [layers(t) is first for t in (-1.0, 0.0, 0.999, 1.0, 2.0)] == [True, True, True, False, False]
    with pytest.raises(InvalidInput, match=r"a Schedule must return AttentionWeights, got float at t = 0\.5"):
        ms.Schedule(lambda t: t)(0.5)


def test_after_its_last_layer_a_schedule_has_no_weights():
    layers = ms.Schedule.layers([random_weights(0, 2)] * 4, 1.0)
    assert layers(1.0) is layers(0.0)
    with pytest.raises(InvalidInput, match=r"no weights after t = 1, asked for t = 1\.5"):
        layers(1.5)
    with pytest.raises(
        InvalidInput, match=r"after t = 1, but the run goes on to t = 2; give t = 1, or more layers"
    ):
        ms.solve(ms.SelfAttention(layers, 1.0), ms.sphere.uniform(5, 2), 2.0)


@pytest.mark.parametrize(("step", "given"), [(0.1, r"0\.08333333333"), (0.3, r"0\.25"), (0.2500001, r"0\.25")])
def test_a_step_that_does_not_divide_a_layer_is_refused(step, given):
    flow = ms.SelfAttention(ms.Schedule.layers([random_weights(0, 2)] * 4, 1.0), 1.0)
    with pytest.raises(InvalidInput, match=rf"does not divide the layer from t = 0 to 0\.25; give step = {given}"):
        ms.solve(flow, ms.sphere.uniform(5, 2), 1.0, method="euler", step=step)


@pytest.mark.parametrize("step", [0.25, 0.125, 1 / 12, None])
def test_a_step_that_divides_every_layer_is_taken(step):
    flow = ms.SelfAttention(ms.Schedule.layers([random_weights(0, 2)] * 4, 1.0), 1.0)
    for t in (1.0, 0.6):
        path = ms.solve(flow, ms.sphere.uniform(5, 2), t, method="euler", step=step)
        assert path.end_time == t


@pytest.mark.parametrize("start", [0.3, 0.1 + 0.2, math.nextafter(0.3, 0)])
@pytest.mark.parametrize("knot", [0.3, 0.1 + 0.2, math.nextafter(0.3, 0)])
def test_edges_that_rounding_separates_are_one(start, knot):
    """No layer lies between a start, an end or a knot and a knot some rounding errors away."""
    stack = [random_weights(seed, 2) for seed in range(3)]
    two = ms.Schedule.layers(stack[:2], 0.6, knots=[0.0, knot, 0.6])
    two.check_run(start, 0.6, 0.3)
    two.check_run(0.0, start, 0.3)
    two.check_run(start, start, 0.3)
    ms.Schedule.layers(stack, 0.6, knots=[0.0, 0.3, 0.1 + 0.2, 0.6]).check_run(0.0, 0.6, 0.3)
    with pytest.raises(InvalidInput, match=r"the layer from t = 0\.3 to 0\.6; give step = 0\.15"):
        two.check_run(start, 0.6, 0.2)
    with pytest.raises(InvalidInput, match=r"the layer from t = 0\.25 to 0\.3; give step = 0\.05"):
        two.check_run(0.25, 0.6, 0.3)


@pytest.mark.parametrize("wrong", ["abc", None, 3, b"", [], {}, 1j, torch.ones(2, 2)])
def test_a_schedule_is_a_function_that_works(wrong):
    with pytest.raises(InvalidInput, match="the function of a Schedule must be a function, got"):
        ms.Schedule(wrong)
    with pytest.raises(InvalidInput, match=r"breakpoints must be|number"):
        ms.Schedule(lambda t: weights(), breakpoints=wrong if wrong != [] else [[]])
    with pytest.raises(InvalidInput, match="piecewise_constant must be True or False"):
        ms.Schedule(lambda t: weights(), piecewise_constant=wrong)
    with pytest.raises(InvalidInput, match=r"layers must be a sequence|at least one layer"):
        ms.Schedule.layers(wrong, 1.0)
    for failing in (lambda: 3, lambda t: 1 / 0, lambda t: wrong):
        with pytest.raises(InvalidInput, match="Schedule"):
            ms.SelfAttention(ms.Schedule(failing), 1.0)


def test_what_they_are_in_one_line():
    w = weights()
    assert repr(ms.Schedule.layers([w, w], 3.0)) == "Schedule(2 layers until t = 3)"
    assert (
        repr(ms.Schedule(abs, breakpoints=[1.0], time_scale=0.1)) == "Schedule(abs, 1 breakpoints, time_scale=0.1)"
    )


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (
            lambda w: ms.Schedule.layers([w, w], 1.0, knots=[0.0, 0.5, 2.0]),
            "the last of the knots must be t = 1, got 2",
        ),
        (lambda w: ms.Schedule.layers([w, w], 1.0, knots=[0.0, 2.0, 1.0]), "knots must be strictly increasing"),
        (lambda w: ms.Schedule(lambda t: w, time_scale=0.0), "time_scale must be > 0"),
        (lambda w: ms.Schedule(lambda t: w, time_scale="fast"), "time_scale must be a number"),
        (lambda w: ms.Schedule.layers([], 1.0), "at least one layer"),
        (lambda w: ms.Schedule.layers([w], -1.0), "t must be > 0"),
        (lambda w: ms.Schedule.layers([w, w], 1.0, knots=[0.0, 1.0]), "need 3 knots"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(build, match):
    with pytest.raises(InvalidInput, match=match):
        build(random_weights(0, 3))


@pytest.mark.parametrize("name", ["ornstein_uhlenbeck", "oscillating"])
def test_random_weights_are_schedules_that_descend(name):
    schedules = getattr(ms.Schedule, name)(3, 1.0, heads=4, steps=8, seed=2)
    up = getattr(ms.Schedule, name)(3, 1.0, heads=4, steps=8, seed=2, descent=False)
    assert len(schedules) == 4 and all(s.end == 1.0 and len(s.breakpoints) == 7 for s in schedules)
    for t in (0.0, 0.3, 1.0):
        for down, other in zip(schedules, up, strict=True):
            assert torch.equal(down(t).V, -down(t).B) and torch.equal(other(t).V, other(t).B)
            assert torch.equal(down(t).B, other(t).B) and torch.equal(down(t).B, down(t).B.T)
    assert not torch.equal(schedules[0](0.5).B, schedules[1](0.5).B)
    with pytest.raises(InvalidInput, match="no weights after t = 1"):
        schedules[0](1.5)
    with pytest.raises(InvalidInput, match="descent must be True or False"):
        getattr(ms.Schedule, name)(3, 1.0, descent=1)
    with pytest.raises(InvalidInput, match="start must be symmetric"):
        getattr(ms.Schedule, name)(2, 1.0, start=[[0.0, 1.0], [0.0, 0.0]])
