"""A run before its first step: what identifies it, and what is refused."""

import threading

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, SolveError, StorageError
from metastable.solve.methods import choose_stepper
from metastable.solve.task import Task
from small_runs import flow, short_run, small_run, weights

HOW = {
    "t0": 0.0, "t": 1.0, "times": [0.0, 1.0], "rtol": 1e-8, "atol": 1e-10, "step": None, "max_step": 0.5,
    "n": 2, "d": 2, "dtype": "float64", "tokens": "digest",
}  # fmt: skip
MASS = torch.full((2,), 0.5, dtype=torch.float64)


def task(head=None, **changes):
    head = head or flow()
    return Task.of(head, MASS, choose_stepper(head, "adaptive", None), (), HOW | changes)


def test_every_parameter_is_part_of_the_identity():
    marks = [task().fingerprint, task(flow(3.0)).fingerprint]
    marks += [task(**{name: value}).fingerprint for name, value in {"t0": -1.0, "t": 2.0, "rtol": 1e-6}.items()]
    assert len(set(marks)) == len(marks) and task().fingerprint == marks[0]
    assert task().record()["parameters"]["tokens"] == "digest"


def test_no_step_is_longer_than_the_time_scale_of_the_flow():
    class Pulse(ms.Flow):
        """Pushed along e_2 by a pulse of width 0.05 at t = 5, and by nothing else."""

        d = 2
        time_scale = 0.05

        def drift(self, t, points, mass):
            push = points.new_tensor([0.0, 1.0 if abs(t - 5.0) < 0.025 else 0.0])
            return push.expand_as(points)

    assert task(Pulse()).problem().max_step == 0.05
    assert task(Pulse(), max_step=0.01).problem().max_step == 0.01
    assert task().problem().max_step == 0.5
    path = ms.solve(Pulse(), [[1.0, 0.0]], 10.0)
    # d phi/dt = cos(phi) during 0.05: sin(phi) = tanh(0.05)
    assert float(path.end.points[0, 1]) == pytest.approx(torch.tanh(torch.tensor(0.05)).item(), abs=1e-6)
    Pulse.time_scale = -1.0
    with pytest.raises(InvalidInput, match=r"time_scale of Pulse must be > 0, got -1\.0"):
        ms.solve(Pulse(), [[1.0, 0.0]], 1.0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "rk4", "step": 5e-324}, "steps of 4.94e-324 over a time of 2 are more than 1e\\+09"),
        ({"method": "euler", "step": 1e-12}, "steps of 1e-12 over a time of 2"),
        ({"max_step": 1e-300}, "or give max_steps to run so many all the same"),
    ],
)
def test_a_run_that_would_not_end_is_refused(options, said):
    with pytest.raises(SolveError, match=said):
        small_run(**options)
    with pytest.raises(SolveError, match=r"max_steps = 3 steps|below rounding"):
        small_run(**options, max_steps=3)


@pytest.mark.parametrize("t", [2**63, 1e18, 1e300])
@pytest.mark.parametrize("method", ["adaptive", "dop853", "rk4", "euler"])
def test_a_final_time_that_nobody_reaches_is_refused(method, t):
    with pytest.raises(SolveError, match=r"are more than 1e\+09"):
        ms.solve(flow(), ms.sphere.uniform(3, 2, seed=1), t, method=method)


@pytest.mark.parametrize("breakpoints", [None, 3, "ab", [float("nan")], [[1.0]], [None], {}])
def test_breakpoints_must_be_times(breakpoints):
    class Own(ms.Flow):
        d = 2

        def drift(self, t, points, mass):
            return torch.zeros_like(points)

    Own.breakpoints = breakpoints
    if breakpoints == {}:
        Own.breakpoints = {"a": 1}
    with pytest.raises(InvalidInput, match="breakpoints of Own must be"):
        ms.solve(Own(), [[1.0, 0.0]], 1.0)


def bumpy(height):
    """A schedule with a bump of this height between all the times at which schedules were once compared."""

    def at(t):
        return ms.AttentionWeights(V=(1 + (height if 1.3 < t < 1.8 else 0.0)) * torch.eye(2), B=torch.eye(2))

    return ms.SelfAttention(ms.Schedule(at, breakpoints=(1.3, 1.8)), 1.0)


def test_schedules_that_differ_by_a_bump_are_other_runs(tmp_path):
    x0 = ms.sphere.uniform(6, 2, seed=2)

    def smooth(height):
        def at(t):
            bump = height * max(0.0, 1 - ((t - 1.55) / 0.12) ** 2) ** 4
            return ms.AttentionWeights(V=(1 + bump) * torch.eye(2), B=torch.eye(2))

        return ms.SelfAttention(ms.Schedule(at), 1.0)

    for kind in (smooth, bumpy):
        out = tmp_path / f"{kind.__name__}.zarr"
        flat = ms.solve(kind(0.0), x0, 2.0, max_step=0.05, out=out)
        assert torch.equal(ms.solve(kind(0.0), x0, 2.0, max_step=0.05, out=out).points, flat.points)
        with pytest.raises(StorageError, match="holds another run"):
            ms.solve(kind(9.0), x0, 2.0, max_step=0.05, out=out)
        other = ms.solve(kind(9.0), x0, 2.0, max_step=0.05)
        assert (other.end.points - flat.end.points).abs().max() > 0.05


def test_events_that_differ_only_in_the_function_are_other_runs(tmp_path):
    """Equal name, level and initial value."""
    start = ms.sphere.uniform(9, 2, seed=4)[0]
    first, second = (
        ms.Event(lambda x, m: x[0] @ start, 0.99, name="moved"),
        ms.Event(lambda x, m: (x[0] @ start) ** 3, 0.99, name="moved"),
    )
    out = tmp_path / "run.zarr"
    assert len(short_run(events=[first], out=out).events) > 0
    assert len(short_run(events=[first], out=out).events) > 0
    with pytest.raises(StorageError, match="holds another run"):
        short_run(events=[second], out=out)


def test_what_cannot_be_read_is_stored_under_a_key(tmp_path):
    guard = threading.Lock()

    def locked(x, m):
        with guard:
            return x[0, 0]

    event, out = ms.Event(locked, 2.0, name="guarded"), tmp_path / "run.zarr"
    for cannot in ({"events": [event]}, {"events": [event], "resume": False}):
        with pytest.raises(InvalidInput, match=r"told from others, and event 'guarded' \(guard\) cannot be read"):
            short_run(**cannot, out=out)
    stored = short_run(events=[event], out=out, key="first")
    assert stored.provenance["key"] == "first"
    assert torch.equal(short_run(events=[event], out=out, key="first").points, stored.points)
    with pytest.raises(StorageError, match="holds another run"):
        short_run(events=[event], out=out, key="second")
    one, other = (short_run(events=[event]).provenance["fingerprint"] for _ in range(2))
    assert one != other
    assert torch.equal(stored.extend(2.0, out=tmp_path / "longer.zarr").points[0], stored.points[0])
    with pytest.raises(InvalidInput, match="key must be a word, got 3"):
        short_run(key=3)


def test_weights_are_part_of_the_identity():
    assert task(ms.SelfAttention(weights(), 8.0)).fingerprint == task().fingerprint
    turned = ms.AttentionWeights(V=weights().V.T, B=weights().B)
    assert task(ms.SelfAttention(turned, 8.0)).fingerprint != task().fingerprint
