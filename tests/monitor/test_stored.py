import json
import os

import numpy as np
import pytest

from metastable.errors import MetastableError, StorageError
from metastable.monitor import Monitor, stored
from walks import walks


def test_what_was_written_is_read(monitor, encoder, tmp_path) -> None:
    path = monitor.save(tmp_path / "deep" / "calibration.npz")
    read = Monitor.load(path, encoder)
    assert read.about == monitor.about and read.identity == monitor.identity
    texts = walks(10, 5)
    assert read.score(texts) == monitor.score(texts)
    assert [file.name for file in path.parent.iterdir()] == ["calibration.npz"]  # nothing half-written


def test_laws_that_two_channels_share_are_written_once(monitor, tmp_path) -> None:
    path = monitor.save(tmp_path / "calibration.npz")
    read = Monitor.load(path)
    typ, win = (read.calibration.channels[monitor.channels.index(name)] for name in ("typ", "win"))
    assert typ.law.whiten is win.law.whiten


def test_no_text_of_the_calibration_is_in_the_file(monitor, tmp_path) -> None:
    with np.load(monitor.save(tmp_path / "c.npz"), allow_pickle=False) as file:
        header = json.loads(bytes(file["header"]))
    assert header["schema"] == "metastable/monitor/3"


@pytest.mark.parametrize("cut", [0, 1, 100, 0.5, -10])
def test_a_cut_file_is_refused(monitor, tmp_path, cut) -> None:
    whole = monitor.save(tmp_path / "c.npz").read_bytes()
    end = int(cut * len(whole)) if isinstance(cut, float) else cut
    (tmp_path / "cut.npz").write_bytes(whole[:end])
    with pytest.raises(StorageError, match=r"damaged|is no calibration"):
        Monitor.load(tmp_path / "cut.npz")


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_file_is_refused(monitor, tmp_path, seed: int) -> None:
    """One byte in ten thousand turned over: a sentence, or (where only padding was hit) the same content."""
    chance = np.random.default_rng(seed)
    whole = np.frombuffer(monitor.save(tmp_path / "c.npz").read_bytes(), dtype=np.uint8).copy()
    place = chance.integers(len(whole), size=max(1, len(whole) // 10_000))
    whole[place] ^= chance.integers(1, 256, size=len(place)).astype(np.uint8)
    (tmp_path / "damaged.npz").write_bytes(whole.tobytes())
    told = "the same"
    try:
        assert Monitor.load(tmp_path / "damaged.npz").about == monitor.about
    except MetastableError as error:
        told = str(error)
    assert told and len(told) < 200 and "\n" not in told


def test_files_of_others_are_refused(tmp_path) -> None:
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "pickled.npz", header=np.array([{"a": 1}], dtype=object))
    for name in ("other.npz", "text.npz", "array.npy", "pickled.npz", "missing.npz"):
        with pytest.raises(StorageError):
            Monitor.load(tmp_path / name)
    with pytest.raises(StorageError):
        Monitor.load(tmp_path)


def test_another_version_of_the_file_is_told(monitor, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(stored, "SCHEMA", "metastable/monitor/99")
    path = monitor.save(tmp_path / "c.npz")
    monkeypatch.undo()
    with pytest.raises(StorageError, match="metastable/monitor/99"):
        Monitor.load(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_place_that_cannot_be_written_is_told(monitor, tmp_path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StorageError, match="cannot be written"):
        monitor.save(tmp_path / "c.npz")
    tmp_path.chmod(0o700)


def test_a_folder_is_no_file(monitor, tmp_path) -> None:
    with pytest.raises(StorageError, match="cannot be written"):
        monitor.save(tmp_path)
    assert not list(tmp_path.parent.glob("*.part"))
