"""Files: what is damaged, foreign or full is told in a sentence, and costs no earlier result."""

import os

import pytest
import torch
import zarr

import metastable as ms
from metastable.errors import InvalidInput, StorageError
from metastable.solve import storage
from small_runs import short_run, small_run


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


def test_foreign_folders_are_left_alone(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "important.txt").write_text("keep me")
    with pytest.raises(StorageError, match="exists and is not a metastable path"):
        short_run().save(folder)
    with pytest.raises(StorageError, match="exists and is not a metastable path"):
        short_run(out=folder, resume=False)
    assert (folder / "important.txt").read_text() == "keep me"
    short_run().save(f"{tmp_path}/run.zarr/")
    assert len(ms.load(f"{tmp_path}/run.zarr/")) == 2


def test_unreadable_files_are_refused_with_a_sentence(tmp_path):
    with pytest.raises(StorageError, match="no file or folder"):
        ms.load(tmp_path / "missing.zarr")
    (tmp_path / "text.zarr").write_text("not zarr")
    with pytest.raises(StorageError, match="not a metastable path"):
        ms.load(tmp_path / "text.zarr")
    small_run().save(tmp_path / "run.zarr")
    group = zarr.open_group(tmp_path / "run.zarr", mode="r+")
    group.attrs["schema_version"] = 99
    with pytest.raises(StorageError, match="schema version 99, newer than 2"):
        ms.load(tmp_path / "run.zarr")
    group.attrs["schema_version"] = 2
    for name in ("end", "mass"):
        for folder, _, files in os.walk(tmp_path / "run.zarr" / name):
            for file in files:
                os.truncate(os.path.join(folder, file), 3)
    with pytest.raises(StorageError, match="damaged"):
        ms.load(tmp_path / "run.zarr")


def test_a_swap_that_fails_puts_the_old_result_back(tmp_path):
    (tmp_path / "old").mkdir()
    with pytest.raises(OSError, match="No such file"):
        storage.swap_in(str(tmp_path / "absent"), str(tmp_path / "old"))
    assert os.listdir(tmp_path) == ["old"]


@pytest.mark.filterwarnings("ignore:Consolidated metadata")
def test_paths_of_the_first_layout_are_read(tmp_path):
    """Their times were called so, and they did not keep the state that a longer run goes on from."""
    path = small_run(times=4)
    path.save(tmp_path / "run.zarr")
    group = zarr.open_group(tmp_path / "run.zarr", mode="r+", use_consolidated=False)
    group.create_array("times", data=path.times.numpy())
    for name in ("time", "state"):
        del group[name]
    group.attrs["schema_version"] = 1
    zarr.consolidate_metadata(group.store)
    old = ms.load(tmp_path / "run.zarr")
    assert torch.equal(old.times, path.times) and torch.equal(old.points, path.points)
    with pytest.raises(InvalidInput, match="stored without its last state; solve from"):
        old.extend(3.0)
    old.save(tmp_path / "new.zarr")
    assert torch.equal(ms.load(tmp_path / "new.zarr").points, path.points)
