"""Layers iterated from many starts: each as if it were alone, until it is decided."""

from __future__ import annotations

import pytest
import torch

from metastable.audit.factors import Factors
from metastable.audit.looping import FEW, INSIDE, LONGER, SETTLED, iterate
from metastable.audit.starts import random_tokens
from metastable.audit.top_space import TopSpace
from tiny_encoders import single_head


def power_iteration():
    """One head, B = 0: s <- s + A mean(s) is a power iteration, which ends on the top eigenvector of A."""
    values = torch.diag(torch.tensor([0.9, 0.3, 0.1, 0.05, *([0.01] * 16)], dtype=torch.float64))
    return single_head(torch.zeros(20, 20, dtype=torch.float64), values)


def by_hand(layer, points, passes):
    """s <- (s + C sum_h A_h m_h)/|.| with the layer's own attention, pass after pass."""
    frames = [points]
    for _ in range(passes):
        points = points + layer.norm.centre(layer.update(points))
        points = points / points.norm(dim=1, keepdim=True)
        frames.append(points)
    return torch.stack(frames)


def test_a_pass_is_attention_residual_and_norm_for_every_start(tiny):
    layer = tiny("bert").layers[1]
    space = TopSpace.of(Factors.of(layer).sum_values).basis
    starts = [random_tokens(layer, n, seed) for seed, n in enumerate((12, 7, 12, 3))]
    runs = iterate(layer, starts, [space], 6, keep=2)
    for start, run in zip(starts, runs, strict=True):
        frames = by_hand(layer, start, run.passes)
        energies = (frames @ space).square().sum(dim=(1, 2)) / len(start)
        torch.testing.assert_close(torch.stack(run.energies)[:, 0], energies, rtol=0, atol=1e-10)
        torch.testing.assert_close(run.points[run.place], frames[-1], rtol=0, atol=1e-10)
    torch.testing.assert_close(torch.stack(runs[2].frames), by_hand(layer, starts[2], runs[2].passes))
    assert not runs[0].frames


def test_a_point_that_has_reached_the_space_of_its_values_is_done():
    """A single point moves by I + A: inside the invariant space of A it stays, and no more passes are needed."""
    layer = power_iteration()
    axis = torch.eye(20, dtype=torch.float64)[:, :1]
    (run,) = iterate(layer, [random_tokens(layer, 20, seed=1)], [axis], 400)
    assert run.settled and len(run.points) == 1 and float(run.mass.sum()) == pytest.approx(1)
    assert 1 - INSIDE < float(run.energies[-1][0]) <= 1 + 1e-12 and run.passes < 100
    assert float(run.points[:, 0].abs().min()) > 0.999


def test_a_start_that_stands_still_is_done_at_that_pass():
    layer = power_iteration()
    wrong = torch.eye(20, dtype=torch.float64)[:, 5:6]  # never reached: only standing still ends the run
    start = random_tokens(layer, 20, seed=1)
    (run,) = iterate(layer, [start], [wrong], 400)
    frames = by_hand(layer, start, run.passes)
    moved = (frames[1:] - frames[:-1]).abs().amax(dim=(1, 2))
    assert run.settled and float(moved[-1]) < SETTLED <= float(moved[:-1].min())


def test_starts_that_are_still_moving_are_not_called_settled():
    """Rotation by a complex pair never stands still: given up after the passes that a merged start may take."""
    turn = torch.zeros(4, 4, dtype=torch.float64)
    turn[0, 0] = turn[1, 1] = 0.5
    turn[0, 1], turn[1, 0] = 0.4, -0.4
    layer = single_head(torch.zeros(4, 4, dtype=torch.float64), turn)
    wrong = torch.eye(4, dtype=torch.float64)[:, :1]
    (run,) = iterate(layer, [random_tokens(layer, 8, seed=2)], [wrong], 60)
    assert not run.settled and len(run.points) == 1 and run.passes == LONGER * 60
    (run,) = iterate(layer, [random_tokens(layer, 8, seed=2)], [torch.eye(4, dtype=torch.float64)[:, :2]], 60)
    assert run.settled  # in the plane of the rotation it is for good


def test_merged_tokens_move_as_they_would_apart(tiny):
    """Two groups of equal tokens are two places with masses, and move as all tokens would."""
    layer = tiny("bert").layers[2]
    pair = random_tokens(layer, 2, seed=4)
    start = pair[torch.tensor([0, 0, 0, 1, 1, 0])]
    space = TopSpace.of(Factors.of(layer).sum_values).basis
    (run,) = iterate(layer, [start], [space], 40)
    frames = by_hand(layer, start, run.passes)
    assert len(run.points) <= min(2, FEW) and run.passes > 25
    torch.testing.assert_close(run.points[run.place], frames[-1], rtol=0, atol=1e-7)
