"""Rows of many systems: each system is seen by itself, whoever asks."""

import numpy as np
import pytest
import torch

from metastable.errors import InvalidInput
from metastable.flows.system_rows import alibi_weights, by_systems


def running_sum(rows: np.ndarray, out: np.ndarray) -> None:
    out[:] = rows.cumsum(axis=1)


@pytest.mark.parametrize("cost", [1.0, 1e7])
def test_every_system_is_seen_by_itself_on_one_core_and_on_all(cost):
    points = torch.randn(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = by_systems(points, 3, running_sum, cost)
    assert torch.equal(found, points.view(4, 3, 2).cumsum(1).view(12, 2))
    assert by_systems(points.float(), 3, running_sum, cost).dtype == torch.float32


def test_rows_that_are_no_whole_systems_are_refused():
    with pytest.raises(InvalidInput, match="rows must be a multiple of 5 on the CPU, got 12 on cpu"):
        by_systems(torch.zeros(12, 2), 5, running_sum, 1.0)


def test_the_last_token_weighs_most():
    assert alibi_weights(4, 0.0).tolist() == [1.0] * 4
    assert np.allclose(alibi_weights(4, 2.0), np.exp([-2.0, -1.5, -1.0, -0.5]))
