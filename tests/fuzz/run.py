"""`make fuzz`: thousands of random cases of every module in this folder, seeded, bounded and resumable.

    python -m fuzz.run --calls 100000 --comparisons 10000 --minutes 60 --state .fuzz/state.json

A case is a function of a seed that returns None, or one line that says what is wrong; `CASES` of a module names its
own. Cases take turns such that each has had about the same time, in worker processes that are replaced when a case
hangs. The state is written as the work goes on: the same command goes on where it was stopped, `--case NAME --first
SEED` repeats one case, and the exit code is 1 when anything was found.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import pkgutil
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import fuzz

PATIENCE = 60.0
"""Seconds after which one case counts as a hang: many times what the slowest ones take."""
SLICE = 5.0
"""Seconds of one case's seeds in a row, so that turns are fair and starts are few."""


def cases() -> dict[str, Callable[[int], str | None]]:
    """All cases by name."""
    found: dict[str, Callable[[int], str | None]] = {}
    for module in pkgutil.iter_modules(fuzz.__path__):
        found |= getattr(importlib.import_module(f"fuzz.{module.name}"), "CASES", {})
    return dict(sorted(found.items()))


def is_call(name: str) -> bool:
    """Whether a case is a malformed call rather than a numerical comparison."""
    from fuzz.doors import CALLS

    return name in CALLS


def work(pipe: Connection) -> None:
    """A worker: gets (case, first seed, last seed), reports every seed before it begins and what it found."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    os.chdir(tempfile.mkdtemp(prefix="fuzz-"))  # a strange `out` is written here
    known = cases()
    while True:
        name, first, last = pipe.recv()
        begin = time.perf_counter()
        seed = first
        while seed < last and (seed == first or time.perf_counter() - begin < SLICE):
            pipe.send(("at", seed))
            try:
                found = known[name](seed)
            except BaseException as error:
                found = f"the case itself raised {type(error).__name__}: {' '.join(str(error).split())[:150]}"
            if found is not None:
                pipe.send(("found", seed, found))
            seed += 1
        pipe.send(("done", seed, time.perf_counter() - begin))


class Worker:
    """A process with what it is doing and since when."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other,), daemon=True)
        self.process.start()
        self.name, self.seed, self.since = "", -1, time.monotonic()

    def begin(self, name: str, first: int, last: int) -> None:
        self.name, self.seed, self.since = name, first, time.monotonic()
        self.pipe.send((name, first, last))


def read(state: Path) -> dict[str, Any]:
    """What earlier runs did: the next seed and the seconds of every case, and what they found."""
    if state.exists():
        kept: dict[str, Any] = json.loads(state.read_text())
        return kept
    return {"next": {}, "seconds": {}, "found": []}


def write(state: Path, record: dict[str, Any]) -> None:
    """Atomically."""
    state.parent.mkdir(parents=True, exist_ok=True)
    beside = state.with_suffix(".new")
    beside.write_text(json.dumps(record, indent=1))
    beside.replace(state)


def run(
    goals: dict[str, int], names: list[str], minutes: float, state: Path, workers: int, seed: int
) -> dict[str, Any]:
    """Give seeds to workers until every goal is met or the time is over."""
    record = read(state)
    for name in names:
        record["next"].setdefault(name, seed)
        record["seconds"].setdefault(name, 0.0)
    crew = [Worker() for _ in range(workers)]
    idle, end, said = list(crew), time.monotonic() + 60 * minutes, time.monotonic()
    running: set[str] = set()

    def done(kind: str) -> int:
        return sum(record["next"][n] - seed for n in names if kind == ("calls" if is_call(n) else "comparisons"))

    def left(name: str) -> int:
        kind = "calls" if is_call(name) else "comparisons"
        return goals[kind] - done(kind)

    def replace(worker: Worker, why: str) -> Worker:
        worker.process.kill()
        report(worker.name, worker.seed, why)
        record["next"][worker.name] = worker.seed + 1
        running.discard(worker.name)
        crew.remove(worker)
        crew.append(fresh := Worker())
        return fresh

    def report(name: str, at: int, what: str) -> None:
        record["found"].append([name, at, what])
        print(f"{name} seed {at}: {what}", flush=True)

    try:
        while time.monotonic() < end:
            for worker in list(idle):
                waiting = [name for name in names if left(name) > 0 and name not in running]
                if not waiting:
                    break
                name = min(waiting, key=lambda n: record["seconds"][n])
                running.add(name)
                idle.remove(worker)
                worker.begin(name, record["next"][name], record["next"][name] + left(name))
            if not running:
                break
            for pipe in wait([w.pipe for w in crew], timeout=1.0):
                worker = next(w for w in crew if w.pipe is pipe)
                try:
                    kind, at, *rest = worker.pipe.recv()
                except (EOFError, OSError):
                    idle.append(replace(worker, f"the process died with exit code {worker.process.exitcode}"))
                    continue
                worker.seed, worker.since = at, time.monotonic()
                record["next"][worker.name] = at
                if kind == "found":
                    report(worker.name, at, rest[0])
                elif kind == "done":
                    record["seconds"][worker.name] += rest[0]
                    running.discard(worker.name)
                    idle.append(worker)
            for worker in [w for w in crew if w not in idle]:
                if time.monotonic() - worker.since > PATIENCE:
                    idle.append(replace(worker, f"no answer within {PATIENCE:g} s"))
            if time.monotonic() - said > 30:
                said = time.monotonic()
                write(state, record)
                print(
                    f"{done('calls')} calls, {done('comparisons')} comparisons, {len(record['found'])} found",
                    flush=True,
                )
    finally:
        write(state, record)
        for worker in crew:
            worker.process.kill()
    return record


def main() -> int:
    """Run, print what was found, and say how much was done."""
    parser = argparse.ArgumentParser(description="Random cases against references and malformed calls.")
    parser.add_argument("--calls", type=int, default=100_000)
    parser.add_argument("--comparisons", type=int, default=10_000)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--state", type=Path, default=Path(".fuzz/state.json"))
    parser.add_argument("--seed", type=int, default=0, help="the first seed of every case")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--case", action="append", help="only this case; may be given several times")
    parser.add_argument("--once", type=int, help="one seed of one --case, in this process")
    asked = parser.parse_args()
    known = cases()
    names = asked.case or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"unknown case {unknown[0]!r}; choose from {', '.join(known)}")
    if asked.once is not None:
        found = known[names[0]](asked.once)
        print(found or "nothing wrong")
        return 0 if found is None else 1
    goals = {"calls": asked.calls, "comparisons": asked.comparisons}
    record = run(goals, names, asked.minutes, asked.state, asked.workers, asked.seed)
    for name in names:
        print(f"{name:32s} {record['next'][name] - asked.seed:8d} seeds {record['seconds'][name]:8.1f} s")
    print(f"{len(record['found'])} found")
    return 1 if record["found"] else 0


if __name__ == "__main__":
    sys.exit(main())
