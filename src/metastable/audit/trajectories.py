"""Tokens of a run in a plane: what the page draws of a looped layer."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.audit.loop_run import log_times

STRIDE = 0.04
"""Way that a token goes in the plane between two frames of its trajectory (the circle has radius 1)."""
FRAMES = 120
"""Most frames of a trajectory, so that the page stays small."""


def in_plane(frames: Float[Tensor, "t n d"], tokens: int = 24) -> tuple[list[int], list[list[list[float]]]]:
    """Some tokens in the plane of the first two principal directions of the run, at the steps that show their way.

    A frame is kept when a token went `STRIDE` in the plane since the last one: at most `FRAMES`, and the end.
    """
    rows = frames[log_times(len(frames))].flatten(0, 1)
    axes = torch.linalg.eigh(rows.T @ rows)[1][:, -2:].flip(1)  # of the Gram matrix: d x d, however long the run
    axes = axes * torch.where(axes[axes.abs().argmax(dim=0), [0, 1]] < 0, -1.0, 1.0)
    pick = torch.linspace(0, frames.shape[1] - 1, min(tokens, frames.shape[1])).round().long()
    places = (frames[:, pick] @ axes).cpu()
    kept = [0]
    for t in range(1, len(places)):
        if len(kept) < FRAMES and float((places[t] - places[kept[-1]]).norm(dim=1).max()) >= STRIDE:
            kept.append(t)
    if kept[-1] != len(places) - 1:
        kept.append(len(places) - 1)
    plane = places[kept].transpose(0, 1).tolist()
    return kept, [[[round(x, 4) for x in place] for place in token] for token in plane]
