"""What a trace keeps: O(sqrt(K)) states, and all that is needed to make every step again."""

import math

import pytest
import torch

from metastable import AttentionWeights, SelfAttention
from metastable.solve.problem import Problem, State, Step
from metastable.solve.trace import BALANCE, Trace


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
