"""How fast scheduled weights change: pulses of known width, and what has no time scale."""

import math

import numpy as np
import pytest

import metastable as ms
from fuzz.runs import CASES
from metastable.flows.time_scale import LEAST, PROBES, time_scale


def strength(f, d=2):
    """V = f(t) I."""
    return ms.Schedule(lambda t: ms.AttentionWeights(V=f(t) * np.eye(d), B=np.eye(d)))


@pytest.mark.parametrize("height", [3.0, -0.5, 1e-4])
@pytest.mark.parametrize(("centre", "width", "stop"), [(5.0, 0.05, 10.0), (17.123, 0.05, 50.0), (0.31, 0.002, 1.0)])
def test_the_width_of_a_pulse_is_found(centre, width, stop, height):
    bell = strength(lambda t: 1 + height * 2 ** -((2 * (t - centre) / width) ** 2))
    assert time_scale(bell, 0.0, stop) == pytest.approx(width, rel=0.05)
    box = strength(lambda t: 1 + height * (abs(t - centre) < width / 2))
    assert time_scale(box, 0.0, stop) == pytest.approx(width, rel=0.3)


def test_a_pulse_in_any_entry_is_seen():
    d = 5
    for i, j in ((0, 3), (4, 4)):
        for name in ("V", "B"):

            def at(t, name=name, i=i, j=j):
                matrices = {"V": np.eye(d), "B": np.eye(d)}
                matrices[name][i, j] += math.exp(-(((t - 1) / 0.03) ** 2))
                return ms.AttentionWeights(**matrices)

            assert time_scale(ms.Schedule(at), 0.0, 4.0) == pytest.approx(0.05, rel=0.05)


def test_an_oscillation_has_half_its_period():
    assert time_scale(strength(lambda t: 2 + math.sin(7 * t)), 0.0, 10.0) == pytest.approx(math.pi / 7, rel=0.4)


@pytest.mark.parametrize("f", [lambda t: 1.0, lambda t: 1 + t, lambda t: math.exp(-t), lambda t: 1.0 + (t > 3)])
def test_what_does_not_come_back_has_none(f):
    assert time_scale(strength(f), 0.0, 10.0) == math.inf


def test_a_narrower_pulse_than_the_probes_is_not_promised():
    hidden = strength(lambda t: 1.0 + (abs(t - 5.0033) < 1e-4))
    assert time_scale(hidden, 0.0, 10.0) == math.inf and 10 / PROBES > 2e-4
    hit = strength(lambda t: 1.0 + (abs(t - 5.0) < 1e-9))
    assert time_scale(hit, 0.0, 10.0) == 10 * LEAST


def test_a_flow_knows_the_time_scale_in_a_run_only_or_when_it_is_stated():
    pulse = strength(lambda t: 1 + math.exp(-(((t - 5) / 0.03) ** 2)))
    flow = ms.SelfAttention(pulse, 1.0)
    from metastable.flows.plan import Plan

    plan = Plan(0.0, 10.0, 1e-8, 1e-10)
    assert flow.time_scale == math.inf
    assert flow.for_run(plan).time_scale == pytest.approx(0.05, rel=0.05)
    assert ms.MultiHead([flow, ms.Hardmax(pulse)]).for_run(plan).time_scale == pytest.approx(0.05, rel=0.05)
    stated = ms.SelfAttention(ms.Schedule(pulse.function, time_scale=0.5), 1.0)
    assert stated.time_scale == stated.for_run(plan).time_scale == 0.5
    assert stated.describe()["time_scale"] == 0.5 and "time_scale" not in flow.describe()
    layered = ms.Schedule.layers([pulse(0.0), pulse(5.0)], 10.0)
    assert ms.SelfAttention(layered, 1.0).for_run(plan).time_scale == math.inf


@pytest.mark.parametrize("seed", range(1000, 1012))
def test_random_cases(seed):
    assert CASES["pulse_width"](seed) is None
