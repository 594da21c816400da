"""A longer run from a path: at the digits of one run, in memory, loaded, or streamed."""

import os
import pickle

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, SolveError, StorageError
from metastable.solve import Observer
from small_runs import flow, random_measure, random_weights, small_run, weights


def same(a, b):
    """Whether two paths are one run, to the bit."""
    alike = torch.equal(a.points, b.points) and torch.equal(a.times, b.times) and a.events == b.events
    return alike and torch.equal(a.end.points, b.end.points) and a.provenance == b.provenance


@pytest.mark.parametrize("method", ["adaptive", "dop853", "rk4", "euler"])
@pytest.mark.parametrize("t", [0.7, 1.0, 1.37])
def test_an_extended_run_is_one_run(method, t, tmp_path):
    rho, head = random_measure(3, 10, 3), ms.SelfAttention(random_weights(2, 3), 4.0)
    short = ms.solve(head, rho, t, times=5, method=method, seed=3)
    later = [t + 0.11, t + 0.9, 2.5]
    once = ms.solve(head, rho, 2.5, times=[*short.times.tolist(), *later], method=method, seed=3)
    assert same(short.extend(2.5, times=later), once)
    twice = short.extend(t + 0.2, times=[t + 0.11]).extend(2.5, times=later[1:])
    assert same(twice, once)
    short.save(tmp_path / "short.zarr")
    assert same(ms.load(tmp_path / "short.zarr").extend(2.5, times=later), once)
    assert same(pickle.loads(pickle.dumps(short)).extend(2.5, times=later), once)


def test_the_exact_method_goes_on_exactly():
    zero = ms.ZeroTemperature(weights())
    x0 = ms.sphere.uniform(9, 2, seed=4)
    once = ms.solve(zero, x0, 3.0, times=[0.0, 1.0, 3.0])
    assert once.provenance["parameters"]["method"] == "exact"
    assert same(ms.solve(zero, x0, 1.0).extend(3.0), once)


def test_layers_go_on_through_their_knots():
    layers = ms.Schedule.layers([random_weights(seed, 3) for seed in range(4)], 4.0)
    head, rho = ms.SelfAttention(layers, 2.0), random_measure(3, 6, 3)
    for method in ("adaptive", "euler"):
        for t in (0.5, 1.0, 2.6):
            once = ms.solve(head, rho, 4.0, times=[0.0, t, 4.0], method=method)
            assert same(ms.solve(head, rho, t, method=method).extend(4.0), once)


def test_times_that_are_kept():
    short = small_run(times=3)
    assert short.extend(3.0).times.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert short.extend(4.0, times=2).times.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert small_run(times=[0.5]).extend(4.0, times=[2.0, 3.0]).times.tolist() == [0.5, 2.0, 3.0]
    assert len(small_run().extend(2.5, times=[])) == 2


def test_a_stored_run_is_extended_in_its_place(tmp_path):
    out = tmp_path / "run.zarr"
    once = small_run(times=5).extend(4.0, times=5)
    longer = small_run(times=5, out=out).extend(4.0, times=5, out=out)
    assert longer.store == str(out) and same(longer, once)
    assert os.listdir(tmp_path) == ["run.zarr"]
    assert same(ms.load(out).extend(5.0), once.extend(5.0))
    # It is the run that one call would have stored.
    opened = ms.solve(flow(), ms.sphere.uniform(12, 2, seed=1), 4.0, times=longer.times, out=out)
    assert same(opened, once)
    with pytest.raises(StorageError, match="holds another run"):
        small_run(times=3).extend(3.0, out=out)


def test_an_extension_that_was_interrupted_goes_on(tmp_path):
    path, out = small_run(times=5), tmp_path / "long.zarr"
    seen = []

    def interrupt(t, steps):
        seen.append(steps)
        if t > 3.0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        path.extend(4.0, times=5, out=out, progress=interrupt)
    first = seen[0]
    seen.clear()
    longer = path.extend(4.0, times=5, out=out, progress=lambda t, steps: seen.append(steps))
    assert seen[0] > first + 1 and same(longer, path.extend(4.0, times=5))


def test_a_last_step_that_was_rejected_is_not_gone_on_from():
    """To a later time the step that was cut short and rejected would have been another one."""
    x0, how = ms.sphere.uniform(12, 2, seed=1), {"times": [0.0], "method": "dop853", "rtol": 1e-5}
    once = ms.solve(flow(200.0), x0, 0.4, **how)
    rejected = 0
    for t in (0.185, 0.19, 0.195, 0.2, 0.205):
        short = ms.solve(flow(200.0), x0, t, **how)
        steps = short.provenance["statistics"]["accepted_steps"]
        rejected += short.last_state().state.accepted < steps - 1
        assert same(short.extend(0.4, times=[]), once)
    assert rejected > 1


def test_events_go_on(tmp_path):
    level = ms.Event(lambda x, m: (x[:, 0].abs() * m).sum(), level=0.9, name="aligned")
    x0 = ms.sphere.uniform(12, 2, seed=1)
    once = ms.solve(flow(), x0, 3.0, times=[0.0, 0.2, 3.0], events=[level])
    assert len(once.events) == 1
    short = ms.solve(flow(), x0, 0.2, events=[level])
    assert short.events == () and same(short.extend(3.0), once)
    short.save(tmp_path / "short.zarr")
    loaded = ms.load(tmp_path / "short.zarr")
    with pytest.raises(InvalidInput, match="made with events; pass them as events="):
        loaded.extend(3.0)
    assert same(loaded.extend(3.0, events=[level]), once)
    assert torch.equal(loaded.extend(3.0, events=[]).points, once.points)


def test_a_run_that_an_event_stopped_goes_on_when_told_how():
    stop = ms.Event(lambda x, m: (x[:, 0].abs() * m).sum(), level=0.75, stop=True, name="aligned")
    stopped = small_run(events=[stop])
    assert stopped.end_time < 2.0
    with pytest.raises(InvalidInput, match=r"an event stopped this path at t = .*; pass events="):
        stopped.extend(2.0)
    assert torch.equal(stopped.extend(2.0, events=[]).end.points, small_run().end.points)


def test_a_run_that_an_observer_ended_goes_on():
    class Enough(Observer):
        def step(self, step):
            return step.t > 0.5

    ended = small_run(observers=[Enough()])
    longer = ended.extend(2.0)
    assert torch.equal(longer.end.points, small_run().end.points) and "ended_by" not in longer.provenance


def test_a_flow_that_no_record_holds_is_asked_for(tmp_path):
    class Own(ms.Flow):
        d = 2

        def drift(self, t, points, mass):
            return (mass @ points).expand_as(points)

    ms.solve(Own(), ms.sphere.uniform(5, 2, seed=1), 1.0).save(tmp_path / "own.zarr")
    path = ms.load(tmp_path / "own.zarr")
    with pytest.raises(InvalidInput, match="cannot be rebuilt from its record; pass it as flow="):
        path.extend(2.0)
    with pytest.raises(InvalidInput, match="flow= must be the flow of this path"):
        path.extend(2.0, flow=flow())
    assert same(path.extend(2.0, flow=Own()), ms.solve(Own(), path[0], 2.0, times=[0.0, 1.0, 2.0]))


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"t": 2.0}, "t must be > 2, where the path ends, got 2.0"),
        ({"t": "long"}, "t must be a number"),
        ({"t": 3.0, "times": [1.0, 3.0]}, r"times must lie after those of the path .*, in \(2, 3\]"),
        ({"t": 3.0, "times": "all"}, "times must be one row of numbers"),
        ({"t": 3.0, "flow": 5}, "flow must be a Flow"),
        ({"t": 3.0, "events": 5}, "events must be a sequence of Events"),
        ({"t": 3.0, "observers": 5}, "observers must be a sequence"),
        ({"t": 3.0, "out": 5}, "out must be a path"),
        ({"t": 3.0, "max_steps": 0}, "max_steps must be >= 1"),
    ],
)
def test_what_cannot_be_extended_so(arguments, match):
    with pytest.raises(InvalidInput, match=match):
        small_run().extend(**arguments)


def test_what_cannot_be_extended():
    path = small_run()
    with pytest.raises(InvalidInput, match="not made by solve"):
        ms.Path(path.times, path.mass, path.end, 2.0, {}, frames=path.points).extend(3.0)
    with pytest.raises(SolveError, match="max_steps"):
        path.extend(30.0, max_steps=path.provenance["statistics"]["accepted_steps"] + 1)
