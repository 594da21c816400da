"""The observer that keeps frames."""

import torch

from metastable.solve.observer import Run
from metastable.solve.problem import FRAMES_AT_ONCE, State, Step
from metastable.solve.recorder import Recorder
from small_runs import flow


class Kept:
    def __init__(self):
        self.frames = []

    def keep(self, index, points):
        self.frames.append((index, float(points[0, 0])))


def moving(a, b, asked=None):
    """A step in which the one coordinate is the time."""

    def interpolate(times):
        if asked is not None:
            asked.append(len(times))
        return [torch.full((1, 1), t, dtype=torch.float64) for t in times]

    return Step(State(a, interpolate([a])[0]), State(b, interpolate([b])[0]), interpolate)


def begin(recorder, t=0.0):
    recorder.begin(Run(flow(), torch.ones(1), moving(t, t).end, 9.0, (), "rk4"))
    return recorder


def test_every_save_time_is_kept_once():
    recorder = begin(Recorder([0.0, 0.5, 1.0, 1.5, 2.5], Kept()))
    for a, b in ((0.0, 1.0), (1.0, 1.25), (1.25, 2.0)):
        recorder.step(moving(a, b))
    assert recorder.frames.frames == [(0, 0.0), (1, 0.5), (2, 1.0), (3, 1.5)]
    assert recorder.saved == 4


def test_a_resumed_recorder_goes_on_with_its_number():
    recorder = begin(Recorder([0.0, 0.5, 1.0], Kept(), saved=2), t=0.75)
    recorder.step(moving(0.75, 1.0))
    assert recorder.frames.frames == [(2, 1.0)]


def test_a_step_over_many_save_times_asks_for_few_at_once():
    asked = []
    recorder = begin(Recorder([k / 1000 for k in range(1000)], Kept()))
    recorder.step(moving(0.0, 1.0, asked))
    assert len(recorder.frames.frames) == 1000
    assert max(asked) == FRAMES_AT_ONCE
