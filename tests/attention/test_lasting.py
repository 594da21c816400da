"""A kernel that closes over a compiled function is found on disk by the next process, and not when that changes."""

import subprocess
import sys

import pytest
from llvmlite import ir

from metastable.attention.lasting import written

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


WORKS = """
import gc, sys, warnings
warnings.simplefilter("ignore")
import torch
from numba.core.registry import CPUDispatcher
import metastable as ms

def weights(d):
    one = torch.eye(d, dtype=torch.float64)
    return ms.AttentionWeights(V=one, B=one + 0.3 * torch.ones_like(one).triu(1))

def runs(make, n, d):
    flow, rho = make(weights(d)), ms.Measure(ms.sphere.uniform(n, d, seed=0))
    return [
        lambda: ms.solve(flow, rho, 0.1, rtol=1e-5, atol=1e-5),
        lambda: ms.gradient(flow, rho, 0.1, lambda x: x[0, 0], rtol=1e-5, atol=1e-5),
    ]

softmax = lambda w: ms.SelfAttention(w, 8.0)
many = ms.Ensemble(ms.sphere.uniform(64, 2, seed=0).view(8, 8, 2))
works = [work for n, d in ((60, 2), (60, 3), (40, 5), (40, 12), (700, 8), (1500, 2), (1500, 3), (600, 24))
         for work in runs(softmax, n, d)]
works += runs(lambda w: ms.Causal(softmax(w)), 1200, 3) + runs(lambda w: ms.MultiHead([softmax(w)] * 2), 50, 2)
works += runs(lambda w: ms.UnnormalizedAttention(w, 1.0), 300, 3)
works.append(lambda: ms.solve(softmax(weights(2)), many, 0.2))
few = ms.Measure(ms.sphere.uniform(30, 3, seed=0))
works.append(lambda: ms.solve(ms.CommonNoise(softmax(weights(3)), activation="relu"), few, 0.1, step=0.05, seed=0))
works.append(lambda: ms.meanfield.solve(weights(2), 4.0, lambda x: 1 + 0.3 * x[:, 0], 0.5, tol=1e-3))
for n, d in ((20_000, 2), (20_000, 3)):
    works.append(lambda x=ms.sphere.uniform(n, d, seed=0): ms.attend(x, x, beta=64.0, rtol=1e-8))
works.append(lambda: ms.wasserstein(*(ms.Measure(ms.sphere.uniform(40, 2, seed=s)) for s in (0, 1))))

for work in works[:: int(sys.argv[1])]:
    work()
made = [o for o in gc.get_objects() if type(o) is CPUDispatcher and "metastable" in o.py_func.__module__]
kept = [o for o in made if type(o._cache).__name__ != "NullCache"]
print(sum(map(lambda o: sum(o.stats.cache_hits.values()), kept)),
      *{f"{o.py_func.__module__}.{o.py_func.__qualname__}" for o in kept if o.stats.cache_misses})
"""


def test_nothing_is_compiled_twice():
    # A kernel whose key changes in the course of a process misses itself where it is the first: two orders.
    def run(order):
        command = [sys.executable, "-c", WORKS, str(order)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    run(1)
    for order in (-1, 1):
        found, *compiled = run(order)
        assert int(found) > 20
        assert not compiled


def test_types_have_written_down_their_names():
    kind = written(ir.VectorType(ir.IntType(16), 3))
    before = dict(vars(kind))
    assert str(kind) == "<3 x i16>"
    assert before == vars(kind)
