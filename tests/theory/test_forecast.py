import json
import math

import numpy as np
import pytest

import metastable as ms
from metastable.errors import InvalidInput, NotDefined
from metastable.papers.concentration.families import sheared
from metastable.theory import forecast

I2 = np.eye(2)
G = sheared(0.5)


def test_kinds_without_a_limit():
    turn = forecast(ms.AttentionWeights(V=[[1.0, -1.0], [1.0, 1.0]], B=I2), 50.0, ms.sphere.equispaced(100))
    with pytest.raises(NotDefined, match="comoving_target"):
        turn.curve(1.0)
    assert turn.terminal.kind == "rotation" and turn.terminal.frequency == pytest.approx(1.0)
    json.dumps(turn.to_dict([0.0, 1.0]), allow_nan=False)
    whole = forecast(ms.AttentionWeights(V=np.eye(3), B=np.eye(3)), 30.0, ms.sphere.fibonacci(200))
    assert whole.times.clustering == pytest.approx(0.5 * math.log(200) / 0.72, rel=0.15)
    json.dumps(whole.to_dict([0.0, 1.0]), allow_nan=False)


def test_dictionary_and_table():
    f = forecast(G, 64.0, ms.sphere.equispaced(200))
    record = json.loads(json.dumps(f.to_dict([0.0, 1.0]), allow_nan=False))
    assert record["rates"]["c"] == pytest.approx(0.5)
    assert record["curves"]["predicted"][0] == pytest.approx(f.zero_temperature_curve(0.0))
    assert {row[0] for row in f.table()} >= {"c", "C", "n_eff", "t crossing", "t exit", "terminal", "valid until"}
    assert f.optimum[0] > 0 and len(f.assumptions) == 5
    internal = f.bound(t=1.0)
    assert internal.times[-1] == 1.0 and bool((internal.values >= internal.zero).all())


def test_what_samples_add_is_in_the_dictionary_and_the_table():
    w = ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=I2)
    f = forecast(w, 16.0, ms.sphere.uniform(128, 2, seed=0))
    told, found = f.to_dict()["finite_context"], f.finite_context()
    assert told["n"] == 128 and told["t"] == f.phases.crossing and told["in_range"] == found.in_range
    assert told["rms"] ** 2 == pytest.approx(told["width"] + told["sampling"] + told["context"])
    value, meaning = {name: row for name, *row in f.table()}["rms W2 of samples"]
    assert float(value) == pytest.approx(found.rms, rel=1e-3) and "128 iid tokens" in meaning
    alone = forecast(w, 500.0, ms.sphere.uniform(12, 2, seed=0))
    assert "not claimed" in {name: row for name, *row in alone.table()}["rms W2 of samples"][1]
    turn = forecast(ms.AttentionWeights(V=[[1.0, -1.0], [1.0, 1.0]], B=I2), 50.0, ms.sphere.equispaced(100))
    assert turn.to_dict()["finite_context"] is None and len(turn.table()) < len(f.table())


def test_refusals():
    x = ms.sphere.equispaced(10)
    with pytest.raises(InvalidInput, match="beta must be > 0"):
        forecast(G, 0.0, x)
    with pytest.raises(InvalidInput, match="beta must be finite"):
        forecast(G, math.nan, x)
    with pytest.raises(InvalidInput, match="dimension 3"):
        forecast(G, 1.0, ms.sphere.uniform(5, 3))
    with pytest.raises(InvalidInput, match="invertible B"):
        forecast(ms.AttentionWeights(V=I2, B=np.diag([1.0, 0.0])), 1.0, x)
    with pytest.raises(InvalidInput, match="not isolated"):
        forecast(ms.AttentionWeights(V=np.diag([1.0, 1.0 - 3e-6]), B=I2), 1.0, x)
    with pytest.raises(InvalidInput, match="t must be >= 0"):
        forecast(G, 10.0, x).curve(-1.0)


@pytest.mark.parametrize(
    "t", [None, "3", b"", [[]], [[1.0]], {}, [1.0, [2.0]], 1j, math.nan, [math.inf], 10**400, -1]
)
def test_times_that_are_none(t):
    f = forecast(G, 20.0, ms.sphere.equispaced(20))
    for read in (f.curve, f.safe_curve, f.in_range, f.zero_temperature_curve):
        with pytest.raises(InvalidInput) as refused:
            read(t)
        assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "change",
    [
        {"w": None},
        {"beta": [1.0]},
        {"beta": "hot"},
        {"rho0": None},
        {"rho0": [[]]},
        {"deterministic": 1},
        {"seed": -1},
        {"seed": 2**64},
        {"seed": 0.5},
    ],
)
def test_arguments_that_make_no_forecast(change):
    given = {"w": G, "beta": 10.0, "rho0": ms.sphere.equispaced(10)} | change
    with pytest.raises(InvalidInput) as refused:
        forecast(given.pop("w"), given.pop("beta"), given.pop("rho0"), **given)
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


def test_late_times_cost_no_more_than_the_horizon():
    f = forecast(G, 64.0, ms.sphere.equispaced(100))
    late = f.curve([1e3, 1e6, 1e15])
    assert late[0] == late[1] == late[2] == f.curve(f._prediction.horizon * 1.1)
    assert len(f._prediction.times) <= 2 + f._prediction.horizon / f._prediction.step + 8
    assert f.zero_temperature_curve(1e15) == f.zero_temperature_curve(1e12) < 1e-12
    assert f.in_range(1e15) is False


def test_one_line_says_what_it_is():
    f = forecast(G, 64.0, ms.sphere.equispaced(100))
    for shown in (f, f.times, f.terminal, f.spectrum, f._prediction):
        assert "\n" not in repr(shown) and len(repr(shown)) < 250
    assert repr(f).startswith("Forecast(beta=64, n=100, d=2, kind='point pair'")


def test_multiples_of_the_identity_are_told_in_sane_words():
    x = ms.sphere.equispaced(60)
    same = forecast(ms.AttentionWeights(V=I2, B=I2), 100.0, x)
    zero = forecast(ms.AttentionWeights(V=0 * I2, B=np.diag([-1.0, 2.0])), 100.0, x)
    for f in (same, zero):
        rows = {name: (value, meaning) for name, value, meaning in f.table()}
        assert rows["gap"][0] == rows["c"][0] == "none" and "identity" in rows["gap"][1]
        assert f.C == 0 and rows["C"][0] == "0"
        assert f.optimum == (0.0, pytest.approx(math.sqrt(math.log(101.0) / 100.0)))
        assert f.curve(0.0) == 0.0 and not any("inf" in sentence for sentence in f.assumptions)
        json.dumps(f.to_dict([0.0, 1.0]), allow_nan=False)
    assert "nothing moves" in zero.terminal.sentence and zero.curve([0.0, 2.0]).tolist() == [0.0, 0.0]
