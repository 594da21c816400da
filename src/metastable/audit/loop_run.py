"""`LoopRun`: one start of a looped layer, graded on its curves of energy."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from metastable.audit.looping import Iterated
from metastable.measure import Measure
from metastable.observe import clusters

GATHERED = 0.25
"""Energy in a space from which tokens are said to gather in it: a rule of thumb.

Tokens without preferred direction have about 3% there.
"""
TERMINAL_ENERGY = 0.95
"""Energy in a space from which settled tokens are said to have ended in it: a rule of thumb."""
CLUSTER_ANGLE = 0.3
"""Tokens that are closer than this angle (17 degrees) belong to one cluster."""
OPPOSITE = -0.9
"""Cosine below which two clusters are called antipodal."""
VALUES, PRODUCTS, ELSEWHERE, UNDECIDED = "sum A", "M0", "elsewhere", "undecided"
"""Where a start gathers first, and where it ends."""


@dataclass(frozen=True)
class LoopRun:
    """One start of one layer; energies are shares, passes are counted from 0."""

    kind: str
    """Where its tokens are from: "text", "image", "sequence" or "random"."""
    tokens: int
    passes: int
    first: str | None
    """Which space holds a quarter of the energy first, "sum A" or "M0"; None: neither ever does."""
    reached_values: int | None
    """First pass with a quarter of the energy in the space of sum A."""
    reached_products: int | None
    reached_rematched: int | None
    """The same for the space of M0 with re-matched heads, the control."""
    values_ahead: int
    """Passes before `reached_products` (or of the whole run) in which sum A holds more energy than M0."""
    largest_products: float
    """The largest energy in the space of M0 on the way."""
    end_values: float
    end_products: float
    end_other: float | None
    """The largest energy at the end in the space of another layer's sum A; None for a single layer."""
    end: str
    """Where the tokens settled: in the space of "sum A", of "M0", "elsewhere"; or "undecided": still moving."""
    clusters: int
    antipodal: bool
    """Whether they end as two opposite clusters."""
    curve_steps: list[int] = field(repr=False)
    curve_terminal: list[float] = field(repr=False)
    curve_early: list[float] = field(repr=False)


def graded_run(kind: str, run: Iterated, curve: Float[Tensor, "t k"], first_other: int) -> LoopRun:
    """One start graded on its curves; columns: sum A, M0, re-matched M0 (if `first_other` is 3), other layers."""
    terminal, early = curve[:, 0], curve[:, 1]
    reached_values, reached_products = _first_pass(terminal), _first_pass(early)
    before = len(curve) if reached_products is None else reached_products
    end_values, end_products = float(terminal[-1]), float(early[-1])
    groups = clusters(Measure(run.points.cpu(), run.mass.cpu()), angle=CLUSTER_ANGLE)
    times = log_times(len(curve), 32)
    return LoopRun(
        kind=kind,
        tokens=len(run.place),
        passes=run.passes,
        first=PRODUCTS if earlier(reached_products, reached_values) else None if reached_values is None else VALUES,
        reached_values=reached_values,
        reached_products=reached_products,
        reached_rematched=_first_pass(curve[:, 2]) if first_other == 3 else None,
        values_ahead=int((terminal[:before] > early[:before]).sum()),
        largest_products=float(early.max()),
        end_values=end_values,
        end_products=end_products,
        end_other=float(curve[-1, first_other:].max()) if curve.shape[1] > first_other else None,
        end=UNDECIDED
        if not run.settled
        else VALUES
        if end_values >= TERMINAL_ENERGY
        else PRODUCTS
        if end_products >= TERMINAL_ENERGY
        else ELSEWHERE,
        clusters=len(groups),
        antipodal=len(groups) == 2 and float((run.points @ run.points.T).min()) < OPPOSITE,
        curve_steps=times,
        curve_terminal=[round(float(terminal[t]), 4) for t in times],
        curve_early=[round(float(early[t]), 4) for t in times],
    )


def _first_pass(energy: Float[Tensor, "t"]) -> int | None:
    """The first pass after which a quarter of the energy is in the space."""
    there = (energy >= GATHERED).nonzero()
    return int(there[0]) if len(there) else None


def earlier(one: int | None, other: int | None) -> bool:
    """Whether one pass was reached before the other, which may never have been."""
    return one is not None and (other is None or one < other)


def median_passes(runs: Sequence[LoopRun]) -> float | None:
    """Median number of passes in which sum A was ahead before M0 held a quarter, of the runs where M0 was first."""
    ahead = [run.values_ahead for run in runs if run.first == PRODUCTS]
    return statistics.median(ahead) if ahead else None


def log_times(length: int, count: int = 48) -> list[int]:
    """Some of the times 0, ..., length - 1, the first and the last among them, ever farther apart."""
    grid = {0, length - 1, *(round(math.expm1(math.log(length) * i / (count - 1))) for i in range(count))}
    return sorted(t for t in grid if 0 <= t < length)
