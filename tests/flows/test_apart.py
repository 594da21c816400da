"""Systems that do not see each other: every one moves as it would alone."""

from __future__ import annotations

import pytest
import torch

from metastable import AttentionWeights, MultiHead, SelfAttention, sphere
from metastable.errors import InvalidInput
from metastable.flows.apart import Apart
from metastable.solve import solve


def low_rank_heads(d: int, rank: int, count: int, seed: int) -> MultiHead:
    draw = torch.Generator().manual_seed(seed)

    def matrix(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    heads = []
    for _ in range(count):
        weights = AttentionWeights.from_qkv(matrix(rank, d), matrix(rank, d), matrix(rank, d), matrix(d, rank) / d)
        heads.append(SelfAttention(weights, 0.7, field=matrix(d)))
    return MultiHead(heads, residual=True)


@pytest.mark.parametrize("flow", [low_rank_heads(6, 2, 3, seed=1), low_rank_heads(6, 6, 1, seed=2)])
def test_every_system_moves_as_if_alone(flow):
    points, mass = sphere.uniform(12, 6, seed=3), torch.rand(12, dtype=torch.float64) + 0.1
    together = Apart(flow, 3).drift(0.0, points, mass).vector
    for s in range(3):
        rows = slice(4 * s, 4 * s + 4)
        alone = flow.drift(0.0, points[rows], mass[rows] / mass[rows].sum()).vector
        torch.testing.assert_close(together[rows], alone, rtol=1e-12, atol=1e-12)


def test_a_run_of_all_is_the_runs_of_each():
    flow = low_rank_heads(5, 2, 2, seed=4)
    points = sphere.uniform(9, 5, seed=5)
    end = solve(Apart(flow, 3), points, t=4.0, method="euler", step=1.0).end.points
    for s in range(3):
        rows = slice(3 * s, 3 * s + 3)
        alone = solve(flow, points[rows], t=4.0, method="euler", step=1.0).end.points
        torch.testing.assert_close(end[rows], alone, rtol=0, atol=1e-12)


def test_what_cannot_be_told_apart_is_refused():
    flow = low_rank_heads(5, 2, 2, seed=4)
    with pytest.raises(InvalidInput, match="9 tokens cannot be 2 systems of equal size"):
        Apart(flow, 2).drift(0.0, sphere.uniform(9, 5, seed=0), torch.ones(9) / 9)
    with pytest.raises(InvalidInput, match="systems must be >= 1"):
        Apart(flow, 0)
    with pytest.raises(InvalidInput, match="flow must be a MultiHead flow"):
        Apart(flow.heads[0], 2)
