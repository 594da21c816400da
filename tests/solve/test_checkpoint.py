"""Checkpoints: an interrupted run goes on bit for bit, however it was interrupted."""

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch

import metastable as ms
from metastable.errors import StorageError
from metastable.solve import checkpoint
from metastable.solve.checkpoint import Checkpoint
from metastable.solve.events import Crossing
from metastable.solve.problem import State
from small_runs import flow, short_run, small_run


class Interrupted(Exception):
    pass


@pytest.mark.parametrize(("method", "steps"), [("adaptive", (3, 11, 23)), ("dop853", (1, 4, 9))])
def test_interrupted_run_resumes_bit_for_bit(method, steps, tmp_path):
    x0 = ms.sphere.uniform(12, 2, seed=1)
    event = ms.Event(lambda x, m: (x[:, 0].abs() * m).sum(), level=0.9, name="aligned")
    whole = ms.solve(flow(), x0, 2.0, times=21, events=[event], method=method)
    for after in steps:

        def interrupt(t, steps):
            if steps > after:  # noqa: B023
                raise Interrupted

        out = tmp_path / f"run{after}.zarr"
        with pytest.raises(Interrupted):
            ms.solve(flow(), x0, 2.0, 21, method, out=out, checkpoint_every=0.0, events=[event], progress=interrupt)
        assert os.path.exists(f"{out}.partial/checkpoint.npz")
        with pytest.raises(StorageError, match="other parameters"):
            ms.solve(flow(9.0), x0, 2.0, 21, method, out=out, events=[event])
        resumed = ms.solve(flow(), x0, 2.0, 21, method, out=out, events=[event])
        assert torch.equal(resumed.points, whole.points)
        assert torch.equal(resumed.end.points, whole.end.points)
        assert resumed.events == whole.events
        assert resumed.provenance["statistics"] == whole.provenance["statistics"]
        assert resumed.provenance["attention"] == whole.provenance["attention"]
        assert not os.path.exists(f"{out}.partial") and not os.path.exists(f"{out}.lock")


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


def test_interrupt_between_checkpoints_keeps_what_was_computed(tmp_path):
    event = ms.Event(lambda x, m: x[0, 0], 2.0)

    def interrupt(t, steps):
        if steps == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        short_run(out=tmp_path / "r.zarr", events=[event], progress=interrupt)
    assert (tmp_path / "r.zarr.partial" / "checkpoint.npz").exists()
    resumed = short_run(out=tmp_path / "r.zarr", events=[event])
    assert torch.equal(resumed.end.points, short_run(events=[event]).end.points)


def test_an_interrupted_run_counts_its_work_once(tmp_path):
    """The step in which the run was interrupted is made again, and counted once."""

    def interrupt(t, steps):
        if steps == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small_run(out=tmp_path / "r.zarr", progress=interrupt)
    resumed = small_run(out=tmp_path / "r.zarr")
    assert resumed.provenance["statistics"] == small_run().provenance["statistics"]


def a_checkpoint(t=1.5):
    slope = torch.tensor([[0.25, -0.5]], dtype=torch.float64)
    state = State(t, torch.tensor([[0.6, 0.8]], dtype=torch.float64), slope, 2.0, 0.1, 0.5, 11, 3)
    return Checkpoint(
        "mark", state, 4, (Crossing("half", 0.75, -1),), (0.5, -0.25), 66, {"attention": {"rtol": 0.1}}
    )


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    location = str(tmp_path / "checkpoint.npz")
    a_checkpoint().write(location)
    found = checkpoint.read(location, torch.device("cpu"))
    assert (found.fingerprint, found.saved, found.events, found.gaps, found.evaluations) == (
        "mark", 4, (Crossing("half", 0.75, -1),), (0.5, -0.25), 66,
    )  # fmt: skip
    assert found.record == {"attention": {"rtol": 0.1}}
    assert torch.equal(found.state.points, a_checkpoint().state.points)
    assert torch.equal(found.state.slope, a_checkpoint().state.slope)
    assert [getattr(found.state, k) for k in ("t", "rate", "step", "last_error", "accepted", "rejected")] == [
        1.5, 2.0, 0.1, 0.5, 11, 3,
    ]  # fmt: skip
    assert os.listdir(tmp_path) == ["checkpoint.npz"]
    assert repr(found) == "Checkpoint(State(t = 1.5, 1 tokens in R^2, 11 steps), 4 frames saved)"


def test_a_file_that_is_no_checkpoint_is_refused_with_a_sentence(tmp_path):
    partial = tmp_path / "broken.zarr.partial"
    partial.mkdir()
    (partial / "checkpoint.npz").write_bytes(b"PK\x03\x04 nonsense")
    with pytest.raises(StorageError, match="delete it to start the run anew"):
        small_run(out=tmp_path / "broken.zarr")
