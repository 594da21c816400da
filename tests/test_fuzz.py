"""A small part of `make fuzz`: malformed calls of every public name; the runner finds, is bounded and resumes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import doors, run

CALLS = 3000
"""Malformed calls in the ordinary tests, about a dozen for every public name."""


@pytest.mark.parametrize("first", range(0, CALLS, 300))
def test_malformed_calls_return_or_refuse_in_one_line(first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a strange `out` is written here
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    found = {seed: doors.malformed_call(seed) for seed in range(first, first + 300)}
    assert not {seed: wrong for seed, wrong in found.items() if wrong}


def test_doors_are_all_public_names_and_most_can_be_called_rightly():
    """The fuzzer sees functions, constructors and methods, and its right arguments get past the door."""
    known = doors.doors()
    assert {
        "ms.solve",
        "ms.attend",
        "ms.transport.wasserstein",
        "ms.theory.forecast",
        "ms.Schedule.layers",
        "path.measure",
    } <= {*known}
    right = 0
    for name, door in known.items():
        makers = doors.right_arguments(name, door)
        complete = all(not doors.required(p) or p.name in makers for p in doors._parameters(door))
        if complete:
            assert doors.call(name, {key: make() for key, make in makers.items()}) is None, name
            right += 1
    assert right > 0.7 * len(known)


def test_a_foreign_exception_is_found(monkeypatch):
    monkeypatch.setattr(doors, "doors", lambda: {"bad": lambda beta: beta.nothing})
    assert "AttributeError" in doors.malformed_call(0)


def test_all_cases_have_their_names():
    known = run.cases()
    assert "doors" in known
    assert all(callable(case) for case in known.values())


def test_the_runner_is_bounded_resumes_and_exits_by_what_it_found(tmp_path):
    folder = tmp_path / "fuzz"
    folder.mkdir()
    source = Path(run.__file__).parent
    (folder / "__init__.py").write_text("")
    (folder / "run.py").write_text((source / "run.py").read_text())
    (folder / "doors.py").write_text("CASES, CALLS = {}, frozenset()\n")
    (folder / "toy.py").write_text(
        "def seven(seed):\n    return 'seven' if seed == 7 else None\n\nCASES = {'seven': seven}\n"
    )

    def go(comparisons: int) -> tuple[int, dict]:
        options = f"-m fuzz.run --calls 0 --comparisons {comparisons} --workers 1 --state state.json".split()
        made = subprocess.run([sys.executable, *options], cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
        return made.returncode, json.loads((tmp_path / "state.json").read_text())

    code, state = go(5)
    assert (code, state["next"], state["found"]) == (0, {"seven": 5}, [])
    code, state = go(20)
    assert (code, state["next"], state["found"]) == (1, {"seven": 20}, [["seven", 7, "seven"]])
