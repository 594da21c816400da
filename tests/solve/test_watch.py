"""The observer of events."""

import pytest
import torch

import metastable as ms
from metastable.solve.events import Crossing
from metastable.solve.observer import Run
from metastable.solve.problem import State, Step
from metastable.solve.watch import Watch
from small_runs import flow

MASS = torch.ones(1).double()


def moving(a, b):
    """A step in which the one coordinate is the time."""
    start, end = (State(t, torch.full((1, 1), t, dtype=torch.float64)) for t in (a, b))
    return Step(start, end, lambda times: [torch.full((1, 1), t, dtype=torch.float64) for t in times])


def event(level, stop=False, name="event"):
    return ms.Event(lambda x, m: x[0, 0], level, stop=stop, name=name)


def begun(*events, **known):
    watch = Watch(events, **known)
    watch.begin(Run(flow(), MASS, moving(0.0, 0.0).end, 3.0, (), "rk4"))
    return watch


def test_crossings_are_recorded_in_the_order_of_time():
    watch = begun(event(0.75, name="late"), event(0.25, name="early"), event(2.0, name="never"))
    assert watch.step(moving(0.0, 1.0)) is None
    assert [(hit.name, round(hit.time, 9)) for hit in watch.crossings] == [("early", 0.25), ("late", 0.75)]
    assert watch.gaps == (0.25, 0.75, -1.0)


def test_a_stop_is_the_time_of_its_crossing_and_hides_later_ones():
    watch = begun(event(0.75, name="late"), event(0.5, stop=True, name="stop"))
    assert watch.step(moving(0.0, 1.0)) == pytest.approx(0.5, abs=1e-12)
    assert [hit.name for hit in watch.crossings] == ["stop"]


def test_a_resumed_watch_knows_its_gaps():
    """The observable is not asked again at the start, so that a resumed run sees what the whole one saw."""
    known = begun(event(0.5), gaps=(-0.25,), crossings=[Crossing("before", 0.1, 1)])
    assert known.gaps == (-0.25,)
    known.step(moving(0.25, 1.0))
    assert [hit.name for hit in known.crossings] == ["before", "event"]
