"""The shapes that the signatures promise, checked at run time through a broad use of every room.

The check runs in processes of its own: under it a wrong type never reaches our own sentence, so the tests of bad
input must not see it.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from broad_use import USES, checkable

HERE = Path(__file__).parent
SILENT = 3
"""Modules of one use that may have nothing to check: they declare, or hold what only a terminal calls."""


@pytest.mark.parametrize("use", [use.__name__ for use in USES])
def test_shapes_at_run_time(use: str) -> None:
    done = subprocess.run(
        [sys.executable, str(HERE / "broad_use.py"), use], capture_output=True, text=True, cwd=HERE
    )
    assert done.returncode == 0, done.stderr[-3000:]
    checked, total = (int(word) for word in done.stdout.split() if word.isdigit())
    assert 0 < total - SILENT <= checked, done.stdout


def test_every_room_is_checked() -> None:
    """All rooms that compute or draw; `rowwise` and `threads` are compiled, the others have no arrays at all."""
    package = HERE.parent / "src" / "metastable"
    rooms = {path.stem for path in package.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    without = {"__init__", "_version", "errors", "arguments", "callable_room", "threads", "rowwise", "cli"}
    covered = [room for rooms in USES.values() for room in rooms]
    assert sorted(covered) == sorted(rooms - without)
    assert all(checkable(room) for room in covered)
