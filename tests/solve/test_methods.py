"""Methods by name: the choice among them, and methods that are registered."""

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.solve import METHODS, FixedStep, Stepper, register_stepper
from metastable.solve.methods import choose_stepper
from metastable.solve.problem import Step
from small_runs import flow, small_run, weights


@pytest.fixture
def registry(monkeypatch):
    """Methods that are registered here are forgotten afterwards."""
    for name in METHODS:
        monkeypatch.setitem(METHODS, name, METHODS[name])
    yield METHODS
    for name in set(METHODS) - {"adaptive", "dop853", "rk4", "euler", "exact", "switching"}:
        del METHODS[name]


class Midpoint(FixedStep):
    name, order = "midpoint", 2

    def increment(self, problem, state, t):
        h = t - state.t
        half = problem.retract(state.points + h / 2 * state.slope)
        return h * problem.velocity(state.t + h / 2, half).vector


def test_a_registered_method_is_known_by_its_name(registry):
    assert register_stepper(Midpoint) is Midpoint
    by_name, by_hand = small_run(method="midpoint", step=0.02), small_run(method=Midpoint(), step=0.02)
    assert torch.equal(by_name.end.points, by_hand.end.points)
    assert by_name.provenance["fingerprint"] == by_hand.provenance["fingerprint"]
    with pytest.raises(InvalidInput, match=r"adaptive, dop853, rk4, euler, exact, switching, .*midpoint"):
        small_run(method="magic")
    register_stepper(Midpoint)


@pytest.mark.parametrize(
    ("kind", "match"),
    [
        (3, "must be a subclass of Stepper, got 3"),
        (int, "must be a subclass of Stepper, got <class 'int'>"),
        (Midpoint(), "must be a subclass of Stepper"),
        (type("Nameless", (Midpoint,), {"name": None}), "the stepper Nameless needs a name"),
        (type("Auto", (Midpoint,), {"name": "auto"}), "a word other than 'auto', got 'auto'"),
        (type("Other", (Midpoint,), {"name": "rk4"}), "the name 'rk4' belongs to the stepper RK4 already"),
        (type("Half", (FixedStep,), {"name": "half"}), "the stepper Half must give increment"),
        (Stepper, "the stepper Stepper must give advance"),
        (type("Asks", (Midpoint,), {"__init__": lambda self, k: None}), "the stepper Asks needs arguments"),
    ],
)
def test_what_cannot_be_registered(kind, match, registry):
    with pytest.raises(InvalidInput, match=match):
        register_stepper(kind)


def test_auto_reads_what_methods_and_flows_declare(registry):
    zero = ms.ZeroTemperature(weights())
    assert choose_stepper(zero, "auto", None).name == "exact"
    assert choose_stepper(flow(), "auto", None, 1e-8).name == "dop853"
    assert choose_stepper(flow(), "auto", None, 1e-2).name == "adaptive"
    assert choose_stepper(flow(), "auto", None).name == "adaptive"
    assert choose_stepper(flow(), "auto", 0.1).name == "rk4"
    assert choose_stepper(ms.Hardmax(weights()), "auto", None).name == "switching"
    assert choose_stepper(ms.Hardmax(weights()), "auto", 0.1).name == "rk4"

    @register_stepper
    class Fixed(Stepper):
        """The closed solution of a flow that stands still."""

        name, order, exact = "fixed", 0, True

        def refusal(self, flow):
            return None if type(flow).__name__ == "Still" else "method 'fixed' solves flows that stand still"

        def advance(self, problem, state, limit):
            from dataclasses import replace

            end = replace(state, t=limit, accepted=state.accepted + 1)
            return Step(state, end, lambda times: [state.points for _ in times])

    class Still(ms.Flow):
        d = 2

        def drift(self, t, points, mass):
            return torch.zeros_like(points)

    path = ms.solve(Still(), [[0.6, 0.8]], 5.0, times=3)
    assert path.provenance["parameters"]["method"] == "fixed"
    assert torch.equal(path.points[2], path.points[0])
    assert choose_stepper(zero, "auto", None).name == "exact"
    with pytest.raises(InvalidInput, match="solves flows that stand still"):
        small_run(method="fixed")


def test_a_method_without_a_name_is_refused():
    with pytest.raises(InvalidInput, match="the stepper Nameless needs a name"):
        small_run(method=type("Nameless", (Midpoint,), {"name": None})())


@pytest.mark.parametrize("method", [Midpoint, 3, None, ["rk4"], torch.ones(2)])
def test_what_is_no_method_gets_the_list(method):
    with pytest.raises(InvalidInput, match=r"unknown method .*; choose from auto, adaptive, dop853, rk4"):
        small_run(method=method)
