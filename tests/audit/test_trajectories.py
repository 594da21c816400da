"""Tokens in a plane: starts, ends, and no more frames than asked for."""

from __future__ import annotations

import torch

from metastable.audit.trajectories import FRAMES, in_plane


def test_a_circle_is_seen_as_a_circle():
    angle = torch.linspace(0, 6.0, 1000, dtype=torch.float64)
    frames = torch.stack((angle.cos(), torch.zeros_like(angle), angle.sin()), dim=1)[:, None]
    steps, tokens = in_plane(frames)
    assert steps[0] == 0 and steps[-1] == 999 and len(steps) <= FRAMES + 1
    assert len(tokens) == 1 and len(tokens[0]) == len(steps)
    assert all(abs(x * x + y * y - 1) < 1e-3 for x, y in tokens[0])


def test_tokens_at_rest_have_two_frames():
    frames = torch.eye(3, dtype=torch.float64).expand(50, 3, 3)
    steps, tokens = in_plane(frames)
    assert steps == [0, 49] and len(tokens) == 3
