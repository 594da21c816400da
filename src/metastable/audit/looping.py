"""A layer iterated from many starts at once, s <- (s + C sum_h A_h m_h(s)) / |.|, until every start is decided.

That is `solve` on the layer's flow by Euler's method with steps of one, all starts side by side. Tokens that have
become one move as one from then on, which makes the long ends of runs cheap; and a start that has become a single
point moves by the linear map I + sum A, which never leaves the invariant space of sum A that it has reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metastable.encoders import Layer
from metastable.flows import MultiHead
from metastable.flows.apart import Apart
from metastable.measure import Measure
from metastable.solve import Observer, solve
from metastable.solve.problem import Step

STRETCH = 25
"""Passes between two looks at which starts are decided and which tokens have become one."""
SETTLED = 1e-7
"""A start has settled when no coordinate of a token moves by as much as this in one pass."""
ONE = 1e-6
"""Distance below which tokens move as one: their difference changes nothing that the audit tells."""
FEW = 4
"""Places, at most, to which tokens must have come together before they move as one."""
LONGER = 10
"""A start whose tokens have come together costs next to nothing: it may take so many times more passes."""
INSIDE = 1e-6
"""Energy outside of the space of sum A below which a single point has reached it for good."""


@dataclass(eq=False)
class Iterated:
    """One start on its way: its places with their masses, and what was seen of it."""

    points: Float[Tensor, "m d"]
    mass: Float[Tensor, "m"]
    place: Int[Tensor, "n"]
    """The place of every token of the start."""
    energies: list[Float[Tensor, "k"]]
    """Share of the energy in each of the spaces before the first pass and after every one."""
    settled: bool = False
    frames: list[Float[Tensor, "n d"]] = field(default_factory=list)
    """Tokens before and after every pass, where they are kept."""

    @property
    def passes(self) -> int:
        """Passes through the layer so far."""
        return len(self.energies) - 1


def iterate(
    layer: Layer,
    starts: Sequence[Float[Tensor, "_ d"]],
    spaces: Sequence[Float[Tensor, "d _"]],
    passes: int,
    keep: int | None = None,
) -> list[Iterated]:
    """Iterate all starts; `spaces[0]` is the invariant space of sum A; frames of start number `keep` are kept.

    A start is done when it has settled, or unsettled after `passes` passes (`LONGER` times as many once its tokens
    have come together).
    """
    flow = layer.flow()
    runs = []
    for i, points in enumerate(starts):
        n = len(points)
        mass = torch.full((n,), 1 / n, dtype=points.dtype, device=points.device)
        first = torch.stack([(points @ space).square().sum() / n for space in spaces])
        runs.append(Iterated(points, mass, torch.arange(n), [first]))
        if i == keep:
            runs[-1].frames.append(points.clone())
    going = list(runs)
    while going:
        going.sort(key=lambda run: (len(run.points), run.passes))
        for (_, done), group in groupby(going, key=lambda run: (len(run.points), run.passes)):
            together = list(group)
            limit = passes if len(together[0].points) > FEW else LONGER * passes
            _advance(flow, together, spaces, min(STRETCH, limit - done), passes)
        for run in going:
            _merge(run)
            run.settled = run.settled or _inside(run)
        going = [
            run
            for run in going
            if not run.settled and run.passes < (passes if len(run.points) > FEW else LONGER * passes)
        ]
    return runs


class _Watch(Observer):
    """Writes down the energies of all starts after every pass, and which of them stand still."""

    def __init__(self, runs: Sequence[Iterated], spaces: Sequence[Tensor], kept_passes: int) -> None:
        self.runs, self.kept_passes = runs, kept_passes
        self.spaces = torch.cat(list(spaces), dim=1)
        self.owner = torch.repeat_interleave(
            torch.arange(len(spaces)), torch.tensor([space.shape[1] for space in spaces])
        ).to(self.spaces.device)
        self.mass = torch.stack([run.mass for run in runs])

    def step(self, step: Step) -> bool:
        """Whether all starts stand still."""
        shape = (*self.mass.shape, -1)
        points = step.end.points.reshape(shape)
        moved = (points - step.start.points.reshape(shape)).abs().amax(dim=(1, 2)).tolist()
        parts = torch.einsum("bn,bnk->bk", self.mass, (points @ self.spaces).square())
        shares = torch.zeros(len(self.runs), int(self.owner[-1]) + 1, dtype=parts.dtype, device=parts.device)
        shares.index_add_(1, self.owner, parts)
        for run, here, share, way in zip(self.runs, points, shares, moved, strict=True):
            if run.settled:
                continue
            run.energies.append(share)
            run.settled = way < SETTLED
            if run.frames and run.passes <= self.kept_passes:
                run.frames.append(here[run.place.to(here.device)])
        return all(run.settled for run in self.runs)


def _advance(
    flow: MultiHead, runs: Sequence[Iterated], spaces: Sequence[Tensor], passes: int, kept_passes: int
) -> None:
    points, mass = torch.cat([run.points for run in runs]), torch.cat([run.mass for run in runs])
    watch = _Watch(runs, spaces, kept_passes)
    start = Measure(points, mass)
    path = solve(
        Apart(flow, len(runs)), start, float(passes), [float(passes)], "euler", step=1.0, observers=[watch]
    )
    for run, end in zip(runs, path.end.points.chunk(len(runs)), strict=True):
        run.points = end


def _inside(run: Iterated) -> bool:
    """Whether a single point has reached the space of sum A, and still comes closer."""
    before, now = float(run.energies[-2][0]), float(run.energies[-1][0])
    return len(run.points) == 1 and 1 - now < INSIDE and now >= before - 1e-12


def _merge(run: Iterated) -> None:
    """Tokens closer than `ONE` become one place, if all of them are then in at most `FEW`."""
    near = torch.cdist(run.points, run.points, compute_mode="donot_use_mm_for_euclid_dist") < ONE
    leader = near.to(torch.uint8).argmax(dim=1)  # the first token that is near
    places, index = torch.unique(leader, return_inverse=True)
    if len(places) == len(run.points) or len(places) > FEW:
        return
    mass = torch.zeros(len(places), dtype=run.mass.dtype, device=run.mass.device).index_add_(0, index, run.mass)
    rows = run.points[places]
    run.points, run.mass, run.place = rows, mass, index.cpu()[run.place]
