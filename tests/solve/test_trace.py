"""What a trace keeps: O(sqrt(K)) states, and all that is needed to make every step again."""

import math

import pytest
import torch

from metastable import AttentionWeights, SelfAttention
from metastable.flows.drift import Drift
from metastable.flows.pullback import Pullback
from metastable.solve.problem import Problem, State, Step
from metastable.solve.recording import Stage, Tape
from metastable.solve.trace import BALANCE, LITTLE, MORE, MUCH, Trace


def filled(count):
    problem = Problem(
        SelfAttention(AttentionWeights(V=[[1.0]], B=[[1.0]]), 1.0), torch.ones(1), 1e-6, 0.0, None, 1.0
    )
    trace, most = Trace(), 0
    for k in range(count):
        start, end = (State(float(t), torch.full((1, 1), float(t))) for t in (k, k + 1))
        trace.add(problem, Step(start, end, lambda times: []))
        most = max(most, len(trace.kept))
    return trace, most


@pytest.mark.parametrize("count", [0, 1, 47, 48, 49, 50, 97, 1000, 12345])
def test_all_steps_come_back_in_order_from_the_states_before_them(count):
    trace, _ = filled(count)
    seen = []
    for points, intervals, _ in trace.segments():
        assert float(points[0, 0]) == intervals[0].start
        seen = [i.start for i in intervals] + seen
        assert len(intervals) <= trace.stride
    assert seen == [float(k) for k in range(count)]
    assert not trace.kept and not trace.intervals


@pytest.mark.parametrize("count", [10, 100, 1000, 10000, 40000])
def test_states_and_segments_are_as_many_as_the_root_of_the_steps(count):
    trace, most = filled(count)
    assert most <= math.sqrt(BALANCE * count) + 1
    assert trace.stride <= max(1.0, 2 * math.sqrt(count / BALANCE) + 1)


def taped(count, numel):
    """A trace of steps with tapes of two stages, and the most that it held."""
    points = torch.zeros(numel, 1)
    flow = SelfAttention(AttentionWeights(V=[[1.0]], B=[[1.0]]), 1.0)
    problem = Problem(flow, torch.ones(1), 1e-6, 0.0, None, 1.0)
    stage, trace, most = Stage(points, None, Pullback(Drift(points), lambda w: (w, ()))), Trace(), 0
    for k in range(count):
        start, end = (State(float(t), torch.full((1, 1), float(t))) for t in (k, k + 1))
        tape = Tape(float(k), (stage, stage), end.points, None)
        trace.add(problem, Step(start, end, lambda times: []), tape)
        most = max(most, len(trace.tapes))
    return trace, most


def test_the_last_steps_are_kept_as_they_were_made():
    trace, _ = taped(1000, 1)
    for segment in trace.segments():
        known = len(segment.tapes)
        assert [tape.h for tape in segment.tapes] == [
            i.start for i in segment.intervals[len(segment.intervals) - known :]
        ]
        assert known == len(segment.intervals)


@pytest.mark.parametrize("count", [1, 5, 100, 2000])
def test_tapes_are_as_many_as_the_root_of_the_steps_where_they_take_memory(count):
    numel = LITTLE // 4  # of four such arrays one tape takes all that counts as little
    _, most = taped(count, numel)
    assert 1 <= most <= MORE * (1 + math.sqrt(count)) and 4 * numel * most <= MUCH
    trace, most = taped(count, MUCH)
    assert most == trace.stride


def test_a_step_without_tape_ends_what_is_known():
    trace, _ = taped(10, 1)
    problem = Problem(
        SelfAttention(AttentionWeights(V=[[1.0]], B=[[1.0]]), 1.0), torch.ones(1), 1e-6, 0.0, None, 1.0
    )
    start, end = (State(float(t), torch.full((1, 1), float(t))) for t in (10, 11))
    trace.add(problem, Step(start, end, lambda times: []))
    assert not trace.tapes
