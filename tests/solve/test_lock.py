"""One run at a time writes a folder; the lock of a dead run blocks nobody."""

import dataclasses
import json
import os
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import torch

import metastable as ms
from metastable.errors import StorageError
from metastable.solve import Observer, lock
from metastable.solve.lock import SILENT, Lock
from small_runs import flow, short_run, small_run

SLOW = """
    import sys, time, torch, metastable as ms
    from metastable.solve import Observer

    class Slow(Observer):
        def begin(self, run):
            print("begun", flush=True)
        def step(self, step):
            time.sleep(0.02)

    w = ms.AttentionWeights(V=[[2.0, 0.0], [0.3, 1.0]], B=[[1.0, 0.5], [0.0, 1.0]])
    ms.solve(ms.SelfAttention(w, 8.0), ms.sphere.uniform(12, 2, seed=1), 2.0, times=9, out=sys.argv[1],
             observers=[Slow()])
"""


def dead_process():
    """The number of a process that was and is no more."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def leave(out, age=0.0, **changes):
    """A lock as somebody else left it, touched `age` seconds ago."""
    owner = dataclasses.replace(Lock(str(out)).owner, **changes)
    place = f"{out}.lock"
    with open(place, "w") as file:
        json.dump(dataclasses.asdict(owner), file)
    os.utime(place, (time.time() - age,) * 2)
    return place


def test_a_second_process_with_other_parameters_is_refused_by_name(tmp_path):
    """The first had no checkpoint yet: its folder was wiped, and its frames returned as the other's."""
    out = tmp_path / "run.zarr"
    script = tmp_path / "slow.py"
    script.write_text(textwrap.dedent(SLOW))
    first = subprocess.Popen([sys.executable, script, out], stdout=subprocess.PIPE, text=True)
    assert first.stdout.readline() == "begun\n"
    for options in ({"resume": True}, {"resume": False}):
        with pytest.raises(StorageError, match=rf"is being written by process {first.pid} on .*choose another out"):
            ms.solve(flow(3.0), ms.sphere.uniform(12, 2, seed=2), 1.0, times=40, out=out, **options)
    with pytest.raises(StorageError, match="is being written"):
        short_run().save(out)
    with pytest.raises(StorageError, match="is being written"):
        small_run(times=9, out=out)
    assert first.wait() == 0
    assert torch.equal(ms.load(out).points, small_run(times=9).points)
    assert sorted(os.listdir(tmp_path)) == ["run.zarr", "slow.py"]


def test_a_run_in_its_own_folder_is_refused(tmp_path):
    class Nested(Observer):
        said = ""

        def step(self, step):
            if not self.said:
                with pytest.raises(StorageError) as caught:
                    short_run(out=tmp_path / "r.zarr")
                Nested.said = str(caught.value)

    whole = small_run(out=tmp_path / "r.zarr", observers=[Nested()])
    assert f"process {os.getpid()}" in Nested.said and len(Nested.said.splitlines()) == 1
    assert torch.equal(whole.end.points, small_run().end.points)


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_run_that_breaks_off_releases_its_lock(error, tmp_path):
    def interrupt(t, steps):
        raise error

    with pytest.raises(error):
        short_run(out=tmp_path / "r.zarr", progress=interrupt)
    assert not os.path.exists(tmp_path / "r.zarr.lock")
    short_run(out=tmp_path / "r.zarr")


def test_what_a_dead_run_left_is_taken_over(tmp_path):
    out = tmp_path / "r.zarr"
    gone = dead_process()
    for changes, age in (
        ({"process": gone}, 0.0),
        ({"started": "1"}, 0.0),  # the number belongs to another process now
        ({"machine": "elsewhere"}, SILENT + 60),
    ):
        leave(out, age, **changes)
        with Lock(str(out)) as taken:
            taken.check()
        assert os.listdir(tmp_path) == []


def test_a_run_elsewhere_that_was_heard_of_lives(tmp_path):
    out = tmp_path / "r.zarr"
    leave(out, SILENT / 3, machine="elsewhere", host="far-away", process=7)
    with pytest.raises(StorageError, match=r"process 7 on far-away since .* UTC \(alive 60 s ago\)"):
        short_run(out=out)
    assert os.listdir(tmp_path) == ["r.zarr.lock"]


def test_a_lock_that_nobody_can_read_lives_as_long_as_it_is_fresh(tmp_path):
    place = tmp_path / "r.zarr.lock"
    place.write_text("{")
    with pytest.raises(StorageError, match="is being written by another run"), Lock(str(tmp_path / "r.zarr")):
        pass
    os.utime(place, (time.time() - 2 * SILENT,) * 2)
    with Lock(str(tmp_path / "r.zarr")):
        pass
    assert os.listdir(tmp_path) == []


def test_a_killed_child_that_nobody_waited_for_is_dead(tmp_path):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    started = lock._started(child.pid)
    assert started
    leave(tmp_path / "r.zarr", process=child.pid, started=started)
    with pytest.raises(StorageError, match=f"process {child.pid}"), Lock(str(tmp_path / "r.zarr")):
        pass
    child.kill()
    deadline = time.monotonic() + 60
    while lock._started(child.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    with Lock(str(tmp_path / "r.zarr")):
        pass
    child.wait()


def test_of_many_that_see_a_dead_owner_one_gets_the_lock(tmp_path):
    out, ready = str(tmp_path / "r.zarr"), threading.Barrier(8)
    for _ in range(20):
        leave(out, process=1, started="never")
        held, refused, done = [], [], threading.Event()

        def contend(held=held, refused=refused, done=done):
            ready.wait()
            try:
                with Lock(out) as taken:
                    held.append(taken)
                    done.wait(10)
                    taken.check()
            except StorageError:
                refused.append(1)
                if len(refused) == 7:
                    done.set()

        contenders = [threading.Thread(target=contend) for _ in range(8)]
        for one in contenders:
            one.start()
        for one in contenders:
            one.join()
        assert len(held) == 1 and len(refused) == 7
        assert os.listdir(tmp_path) == []


def test_without_hard_links_the_lock_is_exclusive_all_the_same(tmp_path, monkeypatch):
    def unknown(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", unknown)
    with Lock(str(tmp_path / "r.zarr")) as held:
        held.check()
        with pytest.raises(StorageError, match="is being written"), Lock(str(tmp_path / "r.zarr")):
            pass
    assert os.listdir(tmp_path) == []


def test_a_run_whose_lock_was_taken_ends_without_writing(tmp_path):
    """Its machine slept, say, and another one took over."""

    class Sleep(Observer):
        def step(self, step):
            if step.t > 0.5:
                leave(tmp_path / "r.zarr", machine="elsewhere", token="another")

    with pytest.raises(StorageError, match="was taken over by another run"):
        small_run(times=5, out=tmp_path / "r.zarr", observers=[Sleep()])
    assert os.path.exists(tmp_path / "r.zarr.lock") and not os.path.exists(tmp_path / "r.zarr")


def test_a_living_owner_touches_its_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "HEARTBEAT", 0.01)
    with Lock(str(tmp_path / "r.zarr")) as held:
        os.utime(held.location, (0, 0))
        deadline = time.monotonic() + 60
        while os.stat(held.location).st_mtime == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
        assert os.stat(held.location).st_mtime > 0


def test_a_folder_that_cannot_be_written_gets_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot write"):
        short_run(out=tmp_path / "file" / "r.zarr")
