"""Runs as a user sees them: save times, events, schedules, files, interruption, bad input."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, SolveError, StorageError
from metastable.solve import storage


def weights():
    return ms.AttentionWeights(V=[[2.0, 0.0], [0.3, 1.0]], B=[[1.0, 0.5], [0.0, 1.0]])


def flow(beta=8.0):
    return ms.SelfAttention(weights(), beta)


def small_run(**options):
    return ms.solve(flow(), ms.sphere.uniform(12, 2, seed=1), 2.0, **options)


def test_saved_frames_do_not_depend_on_the_save_times():
    few, many = small_run(times=[0.5, 2.0]), small_run(times=41)
    assert torch.equal(few.points[0], many.points[10])
    assert torch.equal(few.end.points, many.end.points)
    assert torch.equal(many.points[0], ms.sphere.uniform(12, 2, seed=1))
    assert few.times.tolist() == [0.5, 2.0]
    assert torch.equal(small_run(times=[1.0]).end.points, few.end.points)
    assert small_run(times=[1.0]).end_time == 2.0


def test_zero_time_and_zero_velocity():
    x0 = ms.sphere.uniform(3, 2, seed=1)
    assert torch.equal(ms.solve(flow(), x0, 0.0).end.points, x0)
    consensus = torch.tensor([[1.0, 0.0]] * 3, dtype=torch.float64)
    still = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    assert torch.equal(ms.solve(ms.SelfAttention(still, 1.0), consensus, 50.0).end.points, consensus)


def test_event_records_and_stops():
    x0 = ms.sphere.uniform(12, 2, seed=1)
    level = ms.Event(lambda x, m: (x[:, 0].abs() * m).sum(), level=0.9, direction=1, name="aligned")
    path = ms.solve(flow(), x0, 3.0, events=[level], times=[0.0, 3.0])
    (hit,) = path.events
    assert (hit.name, hit.direction) == ("aligned", 1)
    at_hit = ms.solve(flow(), x0, hit.time).end
    assert float((at_hit.points[:, 0].abs() * at_hit.mass).sum()) == pytest.approx(0.9, abs=1e-7)
    stopped = ms.solve(flow(), x0, 3.0, times=31, events=[ms.Event(level.observable, 0.9, stop=True)])
    assert stopped.end_time == pytest.approx(hit.time, abs=1e-9)
    assert float(stopped.times[-1]) <= stopped.end_time < 3.0
    assert len(stopped.points) == len(stopped.times)
    downwards = ms.Event(level.observable, 0.9, direction=-1)
    assert ms.solve(flow(), x0, 3.0, events=[downwards]).events == ()
    for method in ("rk4", "euler"):
        again = ms.solve(flow(), x0, 3.0, events=[level], method=method, step=0.005).events[0]
        assert again.time == pytest.approx(hit.time, abs=0.02)


def test_event_of_the_exact_flow():
    event = ms.Event(lambda x, m: x[0, 0], level=0.9, stop=True)
    w = ms.AttentionWeights(V=torch.diag(torch.tensor([2.0, 1.0])), B=torch.eye(2))
    path = ms.solve(ms.ZeroTemperature(w), [[0.6, 0.8]], 10.0, events=[event])
    expected = np.log((0.8 / 0.6) / (np.sqrt(1 - 0.81) / 0.9))
    assert path.end_time == pytest.approx(expected, abs=1e-10)


def test_layers_are_solved_piece_by_piece():
    first, second = weights(), ms.AttentionWeights(V=torch.eye(2), B=-torch.eye(2))
    x0 = ms.sphere.uniform(9, 2, seed=4)
    layered = ms.SelfAttention(ms.Schedule.layers([first, second], 2.0), 3.0)
    whole = ms.solve(layered, x0, 2.0, times=[1.0, 2.0])
    half = ms.solve(ms.SelfAttention(first, 3.0), x0, 1.0).end
    end = ms.solve(ms.SelfAttention(second, 3.0), half, 1.0).end
    assert (whole.points[0] - half.points).abs().max() < 1e-12
    assert (whole.end.points - end.points).abs().max() < 1e-8
    zero = ms.ZeroTemperature(ms.Schedule.layers([first, second], 2.0))
    exact, adaptive = ms.solve(zero, x0, 2.0), ms.solve(zero, x0, 2.0, method="adaptive")
    assert exact.provenance["parameters"]["method"] == "exact"
    assert (exact.end.points - adaptive.end.points).abs().max() < 1e-7


def test_smooth_schedule_against_the_reference_integrator():
    from scipy.integrate import solve_ivp

    def at(t):
        return ms.AttentionWeights(V=(1 + np.sin(t)) * np.eye(2), B=[[1.0, t], [0.0, 1.0]])

    run = ms.SelfAttention(ms.Schedule(at), 2.0)
    rho = ms.Measure(ms.sphere.uniform(5, 2, seed=4))

    def field(t, y):
        return run.velocity(t, torch.from_numpy(y.reshape(5, 2)), rho.mass).numpy().ravel()

    expected = solve_ivp(field, (0, 2), rho.points.numpy().ravel(), method="DOP853", rtol=1e-11, atol=1e-12).y[
        :, -1
    ]
    assert np.abs(ms.solve(run, rho, 2.0).end.points.numpy().ravel() - expected).max() < 1e-8


def test_path_round_trip(tmp_path):
    rho = ms.Measure(ms.sphere.uniform(7, 3, seed=2), mass=torch.arange(1.0, 8.0))
    w = ms.AttentionWeights(V=torch.eye(3), B=torch.eye(3))
    event = ms.Event(lambda x, m: (m @ x).norm(), level=0.5, name="half")
    path = ms.solve(ms.SelfAttention(w, 2.0), rho, 3.0, times=5, events=[event], seed=2)
    path.save(tmp_path / "run.zarr")
    again = ms.load(tmp_path / "run.zarr")
    assert torch.equal(again.points, path.points)
    assert torch.equal(again.times, path.times)
    assert torch.equal(again.mass, path.mass)
    assert torch.equal(again.end.points, path.end.points)
    assert again.events == path.events
    assert again.provenance == path.provenance
    assert again.provenance["seed"] == 2
    assert again.provenance["schema_version"] == 1
    assert torch.equal(again.measure(-1).points, path.points[-1])
    data = path.to_xarray()
    assert dict(data.sizes) == {"time": 5, "token": 7, "axis": 3}
    assert json.loads(data.attrs["provenance"])["parameters"]["flow"]["beta"] == 2.0
    assert sorted(os.listdir(tmp_path)) == ["run.zarr"]


def test_streamed_run_equals_the_one_in_memory(tmp_path):
    streamed = small_run(times=21, out=tmp_path / "run.zarr")
    assert torch.equal(streamed.points, small_run(times=21).points)
    assert streamed.store == str(tmp_path / "run.zarr")
    before = os.stat(tmp_path / "run.zarr").st_mtime_ns
    reopened = small_run(times=21, out=tmp_path / "run.zarr")
    assert torch.equal(reopened.points, streamed.points)
    assert os.stat(tmp_path / "run.zarr").st_mtime_ns == before
    with pytest.raises(StorageError, match="holds another run"):
        small_run(times=5, out=tmp_path / "run.zarr")
    replaced = small_run(times=5, out=tmp_path / "run.zarr", resume=False)
    assert len(replaced) == 5
    assert sorted(os.listdir(tmp_path)) == ["run.zarr"]


class Interrupted(Exception):
    pass


def test_interrupted_run_resumes_bit_for_bit(tmp_path):
    x0 = ms.sphere.uniform(12, 2, seed=1)
    event = ms.Event(lambda x, m: (x[:, 0].abs() * m).sum(), level=0.9, name="aligned")
    whole = ms.solve(flow(), x0, 2.0, times=21, events=[event])
    for after in (3, 11, 23):
        calls = 0

        def counted(x, m):
            nonlocal calls
            calls += 1
            if calls > after:  # noqa: B023
                raise Interrupted
            return event.observable(x, m)

        out = tmp_path / f"run{after}.zarr"
        with pytest.raises(Interrupted):
            ms.solve(
                flow(), x0, 2.0, times=21, out=out, checkpoint_every=0.0,
                events=[ms.Event(counted, 0.9, name="aligned")],
            )  # fmt: skip
        assert os.path.exists(f"{out}.partial/checkpoint.npz")
        with pytest.raises(StorageError, match="other parameters"):
            ms.solve(flow(9.0), x0, 2.0, times=21, out=out, events=[event])
        resumed = ms.solve(flow(), x0, 2.0, times=21, out=out, events=[event])
        assert torch.equal(resumed.points, whole.points)
        assert torch.equal(resumed.end.points, whole.end.points)
        assert resumed.events == whole.events
        assert resumed.provenance["statistics"] == whole.provenance["statistics"]
        assert not os.path.exists(f"{out}.partial")


def test_killed_process_resumes_bit_for_bit(tmp_path):
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent(
            """
            import sys, torch, metastable as ms
            w = ms.AttentionWeights(V=[[1.0, -0.5], [0.5, 1.0]], B=torch.eye(2))
            ms.solve(ms.SelfAttention(w, 4.0), ms.sphere.uniform(16, 2, seed=1), 15.0, times=16,
                     out=sys.argv[1], checkpoint_every=0.0)
            """
        )
    )
    out = tmp_path / "killed.zarr"
    process = subprocess.Popen([sys.executable, script, out])
    checkpoint = tmp_path / "killed.zarr.partial" / "checkpoint.npz"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert checkpoint.exists(), "the run ended before it could be killed"
    subprocess.run([sys.executable, script, out], check=True)
    subprocess.run([sys.executable, script, tmp_path / "whole.zarr"], check=True)
    resumed, whole = ms.load(out), ms.load(tmp_path / "whole.zarr")
    assert torch.equal(resumed.points, whole.points)
    assert torch.equal(resumed.end.points, whole.end.points)


def test_full_disk_keeps_the_earlier_result(tmp_path, monkeypatch):
    path = small_run(times=3)
    path.save(tmp_path / "run.zarr")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(storage, "finish", full)
    with pytest.raises(StorageError, match="No space left on device; what was there is untouched"):
        small_run(times=4).save(tmp_path / "run.zarr")
    with pytest.raises(StorageError, match="No space left"):
        small_run(times=4, out=tmp_path / "run.zarr", resume=False)
    monkeypatch.undo()
    assert len(ms.load(tmp_path / "run.zarr")) == 3
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".part")]


def test_unreadable_files_are_refused_with_a_sentence(tmp_path):
    with pytest.raises(StorageError, match="no file or folder"):
        ms.load(tmp_path / "missing.zarr")
    (tmp_path / "text.zarr").write_text("not zarr")
    with pytest.raises(StorageError, match="not a metastable path"):
        ms.load(tmp_path / "text.zarr")
    small_run().save(tmp_path / "run.zarr")
    import zarr

    group = zarr.open_group(tmp_path / "run.zarr", mode="r+")
    group.attrs["schema_version"] = 99
    with pytest.raises(StorageError, match="schema version 99, newer than 1"):
        ms.load(tmp_path / "run.zarr")
    group.attrs["schema_version"] = 1
    for name in ("end", "mass"):
        for folder, _, files in os.walk(tmp_path / "run.zarr" / name):
            for file in files:
                os.truncate(os.path.join(folder, file), 3)
    with pytest.raises(StorageError, match="damaged"):
        ms.load(tmp_path / "run.zarr")
    partial = tmp_path / "broken.zarr.partial"
    partial.mkdir()
    (partial / "checkpoint.npz").write_bytes(b"PK\x03\x04 nonsense")
    with pytest.raises(StorageError, match="delete it to start the run anew"):
        small_run(out=tmp_path / "broken.zarr")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"t": -1.0}, "t must be finite and >= 0, got -1.0"),
        ({"t": float("nan")}, "t must be finite"),
        ({"t": "soon"}, "t must be a number"),
        ({"times": [0.0, 1.0, 0.5]}, "strictly increasing"),
        ({"times": [0.0, 3.0]}, r"\[0, t\] = \[0, 2\]"),
        ({"times": []}, "at least one time"),
        ({"times": 1}, "must be >= 2"),
        ({"method": "magic"}, "unknown method 'magic'; choose from auto, adaptive, rk4, euler, exact"),
        ({"method": "exact"}, "solves ZeroTemperature flows"),
        ({"method": "rk4", "step": -0.1}, "step must be > 0"),
        ({"method": "adaptive", "step": 0.1}, "chooses its own steps"),
        ({"rtol": -1.0}, "rtol must be finite and >= 0"),
        ({"rtol": 0.0, "atol": 0.0}, "not both be 0"),
        ({"dtype": torch.int32}, "dtype must be"),
        ({"rho0": torch.ones(3, 3)}, "dimension 3 but the flow's weights have dimension 2"),
        ({"rho0": [[1.0, float("nan")]]}, "NaN"),
        ({"rho0": [[1.0, 0.0], [0.0, 0.0]]}, "zero row 1"),
        ({"rho0": [1.0, 0.0]}, r"shape \(n, d\)"),
        ({"flow": 3}, "flow must be a Flow"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(options, match):
    arguments = {"flow": flow(), "rho0": ms.sphere.uniform(4, 2), "t": 2.0} | options
    with pytest.raises(InvalidInput, match=match):
        ms.solve(**arguments)


def test_a_run_that_cannot_go_on_says_so():
    with pytest.raises(SolveError, match="max_steps = 2 steps ended"):
        small_run(max_steps=2)


def test_unknown_kernel_is_refused():
    with pytest.raises(InvalidInput, match="unknown kernel 'magic'; choose from auto, "):
        ms.SelfAttention(weights(), 1.0, kernel="magic")
