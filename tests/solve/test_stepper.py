"""What a stepper declares by default."""

import pytest
import torch

from metastable.solve import METHODS, State, Stepper
from metastable.solve.stepper import DEFAULT_STEP
from small_runs import flow


class Own(Stepper):
    name, order = "own", 1

    def advance(self, problem, state, limit):
        raise NotImplementedError


def test_defaults():
    own, state = Own(), State(0.0, torch.eye(2))
    assert own.refusal(flow()) is None and not own.exact
    assert own.step_size(None, 1.0, False) == DEFAULT_STEP
    assert own.step_size(0.5, 1.0, True) == 0.5
    assert own.begin(None, state) is state
    assert repr(own) == "Own(order 1)" and repr(METHODS["rk4"]()) == "RK4(order 4)"


def test_every_method_states_its_order():
    for name, order in (("adaptive", 5), ("dop853", 8), ("rk4", 4), ("euler", 1), ("exact", 0)):
        assert METHODS[name].order == order and METHODS[name].name == name
    with pytest.raises(TypeError, match="abstract"):
        Stepper()
