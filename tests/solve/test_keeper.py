"""Checkpoints are written when they are due, and when a run breaks off."""

import os

import pytest
import torch

from metastable.solve import checkpoint
from metastable.solve.checkpoint import Checkpoint
from metastable.solve.keeper import Checkpoints
from metastable.solve.problem import State, Step


def a_checkpoint(t):
    return Checkpoint("mark", State(t, torch.tensor([[0.6, 0.8]], dtype=torch.float64)), 4)


@pytest.mark.parametrize(("every", "written"), [(0.0, True), (1e9, False)])
def test_checkpoints_are_written_when_they_are_due(every, written, tmp_path):
    location = str(tmp_path / "checkpoint.npz")
    observer = Checkpoints(lambda state: a_checkpoint(state.t), lambda point: point.write(location), every)
    observer.end(None)
    assert not os.path.exists(location)
    observer.step(Step.at_rest(a_checkpoint(0.5).state))
    assert os.path.exists(location) is written
    observer.end(None)
    assert checkpoint.read(location, torch.device("cpu")).state.t == 0.5


def test_the_end_that_an_observer_made_is_no_place_to_go_on_from(tmp_path):
    location = str(tmp_path / "checkpoint.npz")
    observer = Checkpoints(lambda state: a_checkpoint(state.t), lambda point: point.write(location), 0.0)
    observer.step(Step.at_rest(a_checkpoint(0.5).state).cut(0.5))
    assert observer.latest is None
    assert os.listdir(tmp_path) == []
