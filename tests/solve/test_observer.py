"""Observers from outside: what they see, how they end a run, and what they cannot break."""

import os

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, StorageError
from metastable.solve import Observer, Run
from metastable.solve.observer import Audience
from small_runs import flow, small_run


class Diary(Observer):
    """Writes down everything."""

    def __init__(self, answer=lambda step: None):
        self.answer, self.steps, self.run, self.ends = answer, [], None, []

    def begin(self, run):
        self.run = run

    def step(self, step):
        self.steps.append((step.start.t, step.t, step.points.clone(), step.at([(step.start.t + step.t) / 2])[0]))
        return self.answer(step)

    def end(self, path):
        self.ends.append(path)


def test_an_observer_sees_the_whole_run_and_changes_nothing():
    diary = Diary()
    path = small_run(times=5, observers=[diary])
    plain = small_run(times=5)
    assert torch.equal(path.points, plain.points)
    assert path.provenance == plain.provenance
    assert (diary.run.t, diary.run.method, diary.run.times) == (2.0, "dop853", (0.0, 0.5, 1.0, 1.5, 2.0))
    assert torch.equal(diary.run.start.points, plain.points[0])
    assert diary.ends == [path]
    assert len(diary.steps) == path.provenance["statistics"]["accepted_steps"]
    starts, ends, points, between = zip(*diary.steps, strict=True)
    assert starts[0] == 0.0 and ends[-1] == 2.0 and starts[1:] == ends[:-1]
    assert torch.equal(points[-1], path.end.points)
    assert (
        between[3] - ms.solve(flow(), plain.measure(0), (starts[3] + ends[3]) / 2).end.points
    ).abs().max() < 1e-7


@pytest.mark.parametrize("yes", [True, np.True_, torch.tensor(True)])
def test_an_observer_ends_the_run_with_its_step(yes):
    path = small_run(times=41, observers=[Diary(lambda step: yes if step.t > 0.5 else False)])
    assert 0.5 < path.end_time < 0.7
    assert float(path.times[-1]) <= path.end_time
    assert path.provenance["ended_by"] == "Diary"


@pytest.mark.parametrize("when", [0.525, np.float64(0.525), torch.tensor(0.525, dtype=torch.float64)])
def test_an_observer_ends_the_run_inside_a_step(when):
    """The step is cut there for all: frames, end, and the observers after it."""
    first = Diary(lambda step: when if step.start.t <= when <= step.t else None)
    second = Diary()
    path = small_run(times=41, observers=[first, second])
    assert path.end_time == second.steps[-1][1] == 0.525
    assert first.steps[-1][1] > 0.525
    assert path.times.tolist() == pytest.approx([0.05 * k for k in range(11)])
    assert torch.equal(path.end.points, small_run(times=[0.525]).points[0])


def test_events_come_before_observers_and_end_the_run_for_them():
    diary = Diary()
    stop = ms.Event(lambda x, m: (x[:, 0].abs() * m).sum(), level=0.75, stop=True)
    path = small_run(events=[stop], observers=[diary])
    assert diary.steps[-1][1] == path.end_time == path.events[0].time
    assert "ended_by" not in path.provenance


def test_a_crossing_after_the_end_did_not_happen():
    event = ms.Event(lambda x, m: (x[:, 0].abs() * m).sum(), level=0.75)
    hit = small_run(events=[event]).events[0].time
    before = hit - 1e-6
    path = small_run(events=[event], observers=[Diary(lambda s: before if s.start.t <= before <= s.t else None)])
    assert path.end_time == before and path.events == ()


class Broken(Exception):
    pass


def failing(after):
    def answer(step):
        if step.t > after:
            raise Broken

    return answer


def test_an_observer_that_raises_loses_no_frame(tmp_path):
    """The run goes on from the last whole step, to the bit, without a checkpoint having been due."""
    whole = small_run(times=21)
    out = tmp_path / "run.zarr"
    diary = Diary(failing(1.0))
    seen = Diary()
    with pytest.raises(Broken):
        small_run(times=21, out=out, observers=[seen, diary])
    assert seen.ends == diary.ends == [None]
    going_on = Diary()
    resumed = small_run(times=21, out=out, observers=[going_on])
    assert going_on.steps[0][0] == going_on.run.start.t == diary.steps[-1][0] > 0.7
    assert torch.equal(resumed.points, whole.points)
    assert resumed.provenance["statistics"] == whole.provenance["statistics"]
    assert os.listdir(tmp_path) == ["run.zarr"]


def test_an_observer_that_raises_at_the_end_has_its_result_on_disk(tmp_path):
    class Late(Observer):
        def end(self, path):
            raise Broken

    diary = Diary()
    with pytest.raises(Broken):
        small_run(times=21, out=tmp_path / "run.zarr", observers=[Late(), diary])
    assert torch.equal(ms.load(tmp_path / "run.zarr").points, small_run(times=21).points)
    assert diary.ends[0].store is not None


def test_an_observer_that_raises_at_the_beginning_stops_the_run():
    class Early(Observer):
        def begin(self, run):
            raise Broken

    first, last = Diary(), Diary()
    with pytest.raises(Broken):
        small_run(observers=[first, Early(), last])
    assert (first.ends, last.ends) == ([None], [])


def test_a_run_that_an_observer_ended_is_not_taken_for_a_whole_one(tmp_path):
    out = tmp_path / "run.zarr"
    short = small_run(out=out, observers=[Diary(lambda step: step.t > 0.5)])
    again = small_run(out=out, observers=[Diary(lambda step: step.t > 0.5)])
    assert again.end_time == short.end_time
    with pytest.raises(StorageError, match=f"holds a run that the observer Diary ended at t = {short.end_time:g}"):
        small_run(out=out)
    assert small_run(out=out, resume=False).end_time == 2.0


def test_a_run_that_is_complete_is_only_opened(tmp_path):
    small_run(out=tmp_path / "run.zarr")
    diary = Diary()
    small_run(out=tmp_path / "run.zarr", observers=[diary])
    assert diary.run is None and not diary.steps and not diary.ends


@pytest.mark.parametrize(
    ("observers", "match"),
    [
        (Diary(), "observers must be a sequence of Observer, got Diary"),
        (3, "observers must be a sequence of Observer, got int"),
        ([3], "an observer must have the methods begin, step and end of an Observer, got int"),
        ([Diary], "an observer must have .*, got the class Diary"),
        ([Diary(lambda step: "soon")], "Diary.step must return None, True or a time, got str"),
        ([Diary(lambda step: step.t + 1)], "Diary.step must end the run inside the step from 0 to"),
        ([Diary(lambda step: float("nan"))], "must end the run inside the step"),
    ],
)
def test_wrong_observers_get_a_sentence(observers, match):
    with pytest.raises(InvalidInput, match=match):
        small_run(observers=observers)


def test_nobody_has_to_watch():
    class Counter:
        """Three methods make an observer, whatever it descends from."""

        count = 0

        def begin(self, run): ...

        def step(self, step):
            self.count += 1

        def end(self, path): ...

    counter = Counter()
    path = small_run(observers=(counter,))
    assert counter.count == path.provenance["statistics"]["accepted_steps"]
    assert Audience(()).end(None) is None


def test_an_answer_of_many_numbers_is_told():
    with pytest.raises(InvalidInput, match=r"Diary\.step must return None, True or a time, got Tensor"):
        small_run(observers=[Diary(lambda step: torch.ones(3))])
    assert small_run(observers=[Diary(lambda step: torch.tensor(True))]).end_time < 2.0


def test_an_observer_given_as_progress_ends_the_run_for_the_recorder_too():
    path = small_run(times=5, method="rk4", step=0.4, progress=Diary(lambda step: 1.3 if step.t > 1.3 else None))
    assert path.end_time == 1.3 and path.times.tolist() == [0.0, 0.5, 1.0]


def test_a_run_and_its_observers_say_what_they_are():
    diary = Diary()
    small_run(times=5, observers=[diary])
    assert repr(diary) == "Diary()"
    assert repr(diary.run) == "Run(SelfAttention, 12 tokens in R^2, t = 0 .. 2, method 'dop853')"
    with pytest.raises(InvalidInput, match="start must be a State"):
        Run(flow(), torch.ones(2), None, 1.0, (), "rk4")
