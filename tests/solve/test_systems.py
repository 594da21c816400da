import math

import numpy as np
import torch

import metastable as ms
from metastable.solve.systems import Round, Systems, combined, largest_errors


def test_combination_has_weights_of_every_systems_own() -> None:
    g = torch.Generator().manual_seed(0)
    x, stages = (
        torch.randn(3, 4, 2, dtype=torch.float64, generator=g),
        torch.randn(2, 3, 4, 2, generator=g).double(),
    )
    weights = np.array([[1.0, 0.0], [0.0, 2.0], [0.5, -1.0]])
    found = combined(x, stages, weights, unit=False)
    for s in range(3):
        assert torch.allclose(found[s], x[s] + weights[s, 0] * stages[0, s] + weights[s, 1] * stages[1, s])
    unit = combined(x, stages, weights, unit=True)
    assert torch.allclose(unit, found / found.norm(dim=2, keepdim=True))


def test_errors_are_tangential_on_the_sphere_and_relative_in_space() -> None:
    w = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    x = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]], dtype=torch.float64)
    stages = torch.tensor([[[[3.0, 4.0]], [[3.0, math.inf]]]], dtype=torch.float64)
    one = np.ones((2, 1))
    assert largest_errors(ms.SelfAttention(w, 1.0), x, x, stages, one, 1.0, 1.0).tolist() == [2.0, math.inf]
    assert largest_errors(ms.EuclideanAttention(w, 1.0), x, 4 * x, stages, one, 1.0, 1.0).tolist() == [
        1.0,
        math.inf,
    ]


def test_the_time_of_systems_is_that_of_the_last_that_runs() -> None:
    systems = Systems.at_rest(torch.zeros(3, 1, 2).double(), 0.5)
    systems.times[:] = [3.0, 1.0, 2.0]
    assert systems.t == 1.0
    systems.running[1] = False
    assert systems.t == 2.0
    systems.running[:] = False
    assert systems.t == math.inf


def test_a_round_interpolates_each_system_inside_its_own_step() -> None:
    x = torch.zeros(2, 1, 2, dtype=torch.float64)
    stages = torch.ones(1, 2, 1, 2, dtype=torch.float64)
    dense = np.array([[1.0, 0.0]])
    made = Round(np.array([7]), np.array([1.0]), np.array([3.0]), x, stages, np.array([1]), dense, unit=False)
    assert made.at(np.array([0, 0]), np.array([1.5, 3.0]))[:, 0, 0].tolist() == [0.5, 2.0]
