"""A kernel that closes over a compiled function is found on disk by the next process, and not when that changes."""

import subprocess
import sys

import pytest

MODULE = """
from functools import cache
from numba import njit
from metastable.attention.exp2 import REDUCTION
from metastable.attention.lasting import lasting

def kernel():
    @njit(fastmath=REDUCTION, inline="always")
    def inner(x):
        return x * {factor}

    INNER = {inner}

    @njit(cache=True)
    def outer(x):
        return INNER(x) + 1.0

    print(outer(2.0), sum(outer.stats.cache_hits.values()))
"""


@pytest.mark.parametrize(("kept", "hits"), [(True, 1), (False, 0)])
def test_the_next_process_finds_it(tmp_path, kept, hits):
    def run(factor):
        inner = 'lasting(inner, "a test")' if kept else "inner"
        (tmp_path / "made.py").write_text(MODULE.format(inner=inner, factor=factor))
        (tmp_path / "made.py").touch()
        code = "import made; made.kernel()"
        command = [sys.executable, "-c", code]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()

    assert run(3.0) == ["7.0", "0"]
    assert [run(3.0)[1] for _ in range(2)] == [str(hits)] * 2 or not kept
    assert run(4.0)[0] == "9.0"
