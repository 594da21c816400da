"""Frames in memory and on disk: one path, to the bit; nothing is replaced that should not be."""

import os

import pytest
import torch

import metastable as ms
from metastable.errors import StorageError
from metastable.solve import storage
from metastable.solve.frames import Frames, InMemory, OnDisk, finished
from metastable.solve.lock import Lock
from small_runs import short_run, small_run, weights

X0 = ms.sphere.uniform(9, 2, seed=4)


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


def test_a_failure_in_the_last_phase_is_repaired_by_the_same_call(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(storage, "swap_in", full)
        with pytest.raises(StorageError, match="No space left"):
            short_run(out=tmp_path / "r.zarr", checkpoint_every=0.0)
    again = short_run(out=tmp_path / "r.zarr", checkpoint_every=0.0)
    assert torch.equal(again.end.points, short_run().end.points)


def test_a_replaced_store_does_not_answer_for_the_old_path(tmp_path):
    old = short_run(out=tmp_path / "r.zarr")
    ms.solve(ms.SelfAttention(weights(), 9.0), X0, 1.0, out=tmp_path / "r.zarr", resume=False)
    with pytest.raises(StorageError, match="holds another run now"):
        _ = old.points
    new = ms.load(tmp_path / "r.zarr")
    for folder, _, files in os.walk(tmp_path / "r.zarr" / "points" / "c"):
        for file in files:
            os.remove(os.path.join(folder, file))
    with pytest.raises(StorageError, match="frames are missing"):
        _ = new.points


def test_both_keep_frames(tmp_path):
    times, like, mass = torch.tensor([0.0, 1.0]), torch.eye(2).double(), torch.full((2,), 0.5).double()
    with Lock(str(tmp_path / "run.zarr")) as lock:
        for frames in (InMemory(times, like, mass), OnDisk(lock, times, like, mass, "mark", True)):
            assert isinstance(frames, Frames)
            frames.keep(0, like)
            path = frames.path(1, ms.Measure(like), 0.5, (), {"fingerprint": "mark"})
            assert torch.equal(path.points, like[None]) and path.end_time == 0.5
    assert finished(str(tmp_path / "none.zarr"), "mark") is None
    assert finished(str(tmp_path / "run.zarr"), "mark").end_time == 0.5
    with pytest.raises(StorageError, match="holds another run"):
        finished(str(tmp_path / "run.zarr"), "another mark")


def test_a_checkpoint_without_frames_says_so(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        small_run(out=tmp_path / "r.zarr", progress=interrupt)
    storage.shutil.rmtree(tmp_path / "r.zarr.partial" / "path.zarr")
    with pytest.raises(StorageError, match="has a checkpoint but no frames; delete it"):
        small_run(out=tmp_path / "r.zarr")


def interrupt(t, steps):
    if steps == 5:
        raise KeyboardInterrupt
