"""What tells one flow from another."""

import functools
import math
import os
import subprocess
import sys
import threading
import types

import numba
import numpy as np
import pytest
import torch
from scipy.interpolate import CubicSpline

import metastable as ms
import small_runs
from metastable.errors import InvalidInput, StorageError
from metastable.flows.identity import describe_weights, identify, identity, unidentified, vouched
from small_runs import weights

X0 = ms.sphere.uniform(5, 2, seed=4)
STRENGTH = 1.0


def own(drift, **attributes):
    """A flow of one's own with this drift."""
    flow = type("Mine", (ms.Flow,), {"d": 2, "drift": drift, "__module__": "notebook"})()
    vars(flow).update(attributes)
    return flow


def mark(flow):
    return ms.solve(flow, X0, 0.1).provenance["fingerprint"]


def closed_over(k):
    return own(lambda self, t, x, m: k * x.roll(1, 1))


def by_global(self, t, x, m):
    return STRENGTH * x.roll(1, 1)


def test_flows_of_this_package_are_their_names_and_parameters():
    assert identity(ms.Hardmax(weights())) == {}
    assert ms.Hardmax(weights()).describe() == {"flow": "Hardmax", "weights": describe_weights(weights())}


def test_equal_flows_share_a_fingerprint_and_others_do_not(monkeypatch):
    """By formula, attribute, closure, global value: each of these changes the run, so it changes the mark."""
    plain = [own(lambda self, t, x, m: 1.0 * x.roll(1, 1)) for _ in range(1)]
    marks = [
        mark(plain[0]),
        mark(own(lambda self, t, x, m: 2.0 * x.roll(1, 1))),
        mark(own(lambda self, t, x, m: self.k * x.roll(1, 1), k=1.0)),
        mark(own(lambda self, t, x, m: self.k * x.roll(1, 1), k=torch.tensor(1.0).double())),
        mark(closed_over(1.0)),
        mark(closed_over(3.0)),
        mark(own(by_global)),
    ]
    monkeypatch.setitem(globals(), "STRENGTH", 2.0)
    marks.append(mark(own(by_global)))
    assert len(set(marks)) == len(marks)
    assert mark(closed_over(3.0)) == marks[5]
    monkeypatch.setitem(globals(), "STRENGTH", 1.0)
    assert mark(own(by_global)) == marks[6]


def test_a_subclass_of_our_flow_is_not_our_flow():
    class SelfAttention(ms.SelfAttention):
        def drift(self, t, points, mass):
            return super().drift(t, points, mass).vector * 2

    a, b = ms.SelfAttention(weights(), 1.0), SelfAttention(weights(), 1.0)
    assert mark(a) != mark(b)
    assert mark(b) == mark(SelfAttention(weights(), 1.0))
    # Weights that were moved to another precision are memory, not identity.
    ms.solve(b, X0, 0.1, dtype=torch.float32)
    assert mark(b) == mark(SelfAttention(weights(), 1.0))


def test_what_cannot_be_read_is_no_ones_run(tmp_path):
    """It runs, never with another one's mark, and is not stored until it says what it is."""
    strange = own(lambda self, t, x, m: x.roll(1, 1), connection=threading.Lock())
    assert unidentified(strange.describe()) == ["connection"]
    assert mark(strange) != mark(strange)
    for flow in (strange, ms.MultiHead([strange, ms.Hardmax(weights())])):
        with pytest.raises(InvalidInput, match="connection cannot be read; pass key= with a word that names it"):
            ms.solve(flow, X0, 0.1, out=tmp_path / "run.zarr")
    strange.describe = lambda: {"flow": "strange", "version": 1}
    stored = ms.solve(strange, X0, 0.1, out=tmp_path / "run.zarr")
    assert torch.equal(ms.solve(strange, X0, 0.1, out=tmp_path / "run.zarr").points, stored.points)
    with pytest.raises(StorageError, match="holds another run"):
        ms.solve(closed_over(1.0), X0, 0.1, out=tmp_path / "run.zarr")


def test_a_description_that_is_no_plain_data_gets_a_sentence():
    flow = own(lambda self, t, x, m: x)
    flow.describe = lambda: {"flow": object()}
    with pytest.raises(InvalidInput, match="numbers, strings, lists and dicts"):
        ms.solve(flow, X0, 0.1)


def test_the_parameters_can_be_read_in_the_provenance():
    described = own(lambda self, t, x, m: x, k=2.5, label="a").describe()
    assert described["parameters"] == {"k": 2.5, "label": "a"}
    assert described["class"] == "notebook.Mine"


def test_weights_are_described_by_digest_and_schedules_by_their_values():
    described = describe_weights(weights())
    assert described["V"] == weights().V.tolist()
    assert described["sha256"] == describe_weights(weights().to())["sha256"]
    layered = describe_weights(ms.Schedule.layers([weights(), weights()], 1.0))
    assert layered["times"] == [0.0, 0.5]
    assert [w["sha256"] for w in layered["weights"]] == [described["sha256"]] * 2


TABLE = {"rate": 1.0}


class Ramp:
    """A callable with parameters."""

    def __init__(self, slope):
        self.slope = slope

    def __call__(self, t):
        return self.slope * t


def scaled(k):
    return lambda t: k * t


def reads_table(t):
    return TABLE["rate"] * t


def reads_module(t):
    return small_runs.weights().V * t


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda t: 2.0 * t, lambda t: 3.0 * t),
        (scaled(1.0), scaled(2.0)),
        (scaled([1.0, [2.0]]), scaled([1.0, [3.0]])),
        (scaled({"a": torch.ones(2)}), scaled({"a": torch.zeros(2)})),
        (scaled(Ramp(1.0)), scaled(Ramp(2.0))),
        (Ramp(1.0), Ramp(2.0)),
        (Ramp(1.0).__call__, Ramp(2.0).__call__),
        (functools.partial(pow, 2), functools.partial(pow, 3)),
        ([1, 2].count, [1, 3].count),
        (CubicSpline([0, 1, 2], [0.0, 1.0, 0.0]), CubicSpline([0, 1, 2], [0.0, 2.0, 0.0])),
        (np.random.default_rng(1).normal, np.random.default_rng(2).normal),
        (numba.njit(lambda t: t), numba.njit(lambda t: 2 * t)),
        (functools.cache(lambda t: t), functools.cache(lambda t: 2 * t)),
        (math.sin, math.cos),
        (np.sin, np.cos),
        (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
        (scaled(ms.Schedule(lambda t: weights())), scaled(ms.Schedule(lambda t: weights().to()))),
    ],
)
def test_functions_are_their_code_and_what_they_read(one, other):
    """Equal when asked twice, readable, and different where anything is different."""
    marks = [identify(f, "f") for f in (one, one, other)]
    assert unidentified(marks) == []
    assert marks[0] == marks[1] and marks[0]["sha256"] != marks[2]["sha256"]


def test_a_function_made_twice_is_one_function():
    assert identify(scaled(2.0), "f") == identify(scaled(2.0), "f")
    assert identify(Ramp(2.0), "f") == identify(Ramp(2.0), "f")
    spline = [CubicSpline([0, 1, 2], [0.0, 1.0, 0.0]) for _ in range(2)]
    assert identify(spline[0], "f") == identify(spline[1], "f")


def test_global_values_and_modules_count(monkeypatch):
    before = identify(reads_table, "f"), identify(reads_module, "f")
    monkeypatch.setitem(TABLE, "rate", 2.0)
    monkeypatch.setattr(small_runs, "weights", lambda: None)
    assert identify(reads_table, "f") != before[0]
    assert identify(reads_module, "f") != before[1]


def test_what_hides_its_state_is_named():
    lock = threading.Lock()

    def guarded(t):
        with lock:
            return t

    described = identify(guarded, "rate")
    assert unidentified(described) == ["rate (lock)"]
    assert vouched(described, "mine") == vouched(identify(guarded, "rate"), "mine")
    assert vouched(described, "mine") != vouched(described, "yours")

    class Hostile:
        def __getattr__(self, name):
            raise RuntimeError

        def __reduce_ex__(self, protocol):
            raise RuntimeError

    assert unidentified(identify(Hostile(), "odd")) == ["odd"]
    endless = []
    for _ in range(5000):
        endless = [endless]
    assert unidentified(identify(endless, "deep")) != []


def test_the_digest_is_the_same_in_another_process():
    """Whatever the order of sets there."""
    script = """if True:
        import numpy as np
        from metastable.flows.identity import identify
        k = {"a": {1, 2, "b"}, "c": np.ones(3)}
        def f(t):
            return k["a"], t * 2.5, len
        print(identify(f, "f")["sha256"])
    """
    found = set()
    for seed in ("1", "2"):
        elsewhere = {**os.environ, "PYTHONHASHSEED": seed}
        run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, env=elsewhere)
        found.add(run.stdout)
    assert len(found) == 1
