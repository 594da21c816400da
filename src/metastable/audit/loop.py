"""The looped layer: the theory's own setting on real weights, from many starts.

One layer's attention is iterated with renormalisation, without the MLP, the other layers or the residual's gain
(`looping`). From the weights alone the audit forecasts where the tokens go: into the top space of M0 first, if its
eigenvalue is much larger than that of sum A, and into that of sum A in the end. Every start is then graded on its
curves: which space holds a quarter of the energy first, and where the tokens settle. A layer is told by k of n.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.audit.factors import Factors
from metastable.audit.heads import WeightAudit
from metastable.audit.loop_run import (
    ELSEWHERE,
    PRODUCTS,
    TERMINAL_ENERGY,
    UNDECIDED,
    VALUES,
    LoopRun,
    earlier,
    graded_run,
    log_times,
)
from metastable.audit.looping import iterate
from metastable.audit.rate import Rate
from metastable.audit.starts import Start, starts_of
from metastable.audit.top_space import TopSpace
from metastable.audit.trajectories import in_plane
from metastable.encoders import Encoder, Layer

STEPS = 400
"""Passes through a layer before a start is given up as undecided; ten times as many where tokens have merged."""
EARLY_RATIO = 3.0
"""Re lambda(M0) / Re lambda(sum A) above which the early phase is forecast: a rule of thumb, not a theorem."""


@dataclass(frozen=True)
class LoopAudit:
    """One layer iterated from many starts: what was forecast, k of n that did so, what the controls say."""

    layer: int
    ratio: float
    forecast_early: bool
    """Forecast: the tokens gather in the dominant space of M0 before they do in that of sum A."""
    starts: int
    undecided: int
    """Starts that were still moving when they were given up: no verdict rests on them."""
    ends_values: Rate
    """Starts that end in the space of sum A, of those that settled."""
    ends_products: Rate
    ends_other: Rate | None
    """The most that end in the space of one other layer's sum A: the control."""
    first_products: Rate
    """Starts that gather in the space of M0 before that of sum A, of all."""
    first_rematched: Rate | None
    """The same for M0 with re-matched heads, the control; None for a single head."""
    chance: float
    """Energy of tokens without preferred direction in such a space."""
    terminal_holds: bool | None
    """Whether more than half of all starts end in the space of sum A, by the interval; None: cannot be told."""
    early: bool | None
    """Whether more than half gather first in the space of M0, and more than with re-matched heads."""
    early_holds: bool | None
    """Whether the forecast of the early phase was right; None: cannot be told."""
    outcome: str
    runs: list[LoopRun] = field(repr=False)
    curve_steps: list[int] = field(repr=False)
    curve_terminal: list[list[float]] = field(repr=False)
    """Lower quartile, median and upper quartile over starts of the energy in the space of sum A at these steps."""
    curve_early: list[list[float]] = field(repr=False)
    drawn: int
    """Number of the start whose tokens are drawn."""
    trajectory_steps: list[int] = field(repr=False)
    trajectories: list[list[list[float]]] = field(repr=False)
    """Some of its tokens in the plane of the first two principal directions of its run: [token][time][2]."""


def audit_loops(
    encoder: Encoder,
    weights: WeightAudit,
    texts: Sequence[Float[Tensor, "layers _ d"]] = (),
    item: str = "text",
    *,
    steps: int = STEPS,
    seed: int = 0,
    report: Callable[[str], None] = lambda text: None,
) -> list[LoopAudit]:
    """Iterate every layer from tokens of texts (or what `item` says; see `text_starts`) and from random tokens."""
    result = []
    for layer in encoder.layers:
        report(f"looped layer {layer.index}")
        result.append(_audited(layer, weights, starts_of(layer, texts, item, seed), steps))
    return result


def _audited(layer: Layer, weights: WeightAudit, starts: Sequence[Start], steps: int) -> LoopAudit:
    spaces = [(a.to(layer.device), b.to(layer.device)) for a, b in weights.spaces]
    values, products = spaces[layer.index]
    factors = Factors.of(layer)
    control = []
    if len(factors.query) > 1:
        control = [TopSpace.of(factors.rematched().sum_products.cpu()).basis.to(layer.device)]
    others = [space for l, (space, _) in enumerate(spaces) if l != layer.index]
    shown = max(range(len(starts)), key=lambda i: (starts[i].kind != "random", len(starts[i].points), -i))
    runs = iterate(
        layer, [start.points for start in starts], [values, products, *control, *others], steps, keep=shown
    )
    curves = [torch.stack(run.energies).cpu() for run in runs]
    first_other = 2 + len(control)
    graded = [
        graded_run(start.kind, run, curve, first_other)
        for start, run, curve in zip(starts, runs, curves, strict=True)
    ]
    settled = [i for i, run in enumerate(graded) if run.end != UNDECIDED]
    ends_values = Rate.of(sum(graded[i].end == VALUES for i in settled), len(settled))
    ends_products = Rate.of(sum(graded[i].end == PRODUCTS for i in settled), len(settled))
    other_counts = [
        sum(float(curves[i][-1, first_other + l]) >= TERMINAL_ENERGY for i in settled) for l in range(len(others))
    ]
    n = len(graded)
    first_products = Rate.of(sum(run.first == PRODUCTS for run in graded), n)
    first_rematched = Rate.of(sum(earlier(run.reached_rematched, run.reached_values) for run in graded), n)
    terminal = _whole(ends_values.k, n - len(settled), n)
    early = _early(first_products, first_rematched if control else None)
    ratio = weights.layers[layer.index].ratio
    forecast = ratio >= EARLY_RATIO
    times = log_times(max(map(len, curves)))
    picked, plane = in_plane(torch.stack(runs[shown].frames))
    return LoopAudit(
        layer=layer.index,
        ratio=ratio,
        forecast_early=forecast,
        starts=n,
        undecided=n - len(settled),
        ends_values=ends_values,
        ends_products=ends_products,
        ends_other=Rate.of(max(other_counts), len(settled)) if others else None,
        first_products=first_products,
        first_rematched=first_rematched if control else None,
        chance=values.shape[1] / layer.norm.d_eff,
        terminal_holds=terminal,
        early=early,
        early_holds=None if early is None else early == forecast,
        outcome=_outcome(graded),
        runs=graded,
        curve_steps=times,
        curve_terminal=_quartiles(curves, 0, times),
        curve_early=_quartiles(curves, 1, times),
        drawn=shown,
        trajectory_steps=picked,
        trajectories=plane,
    )


def _whole(k: int, undecided: int, n: int) -> bool | None:
    """The verdict of k of n that stands however the undecided starts would have ended."""
    low, high = Rate.of(k, n).verdict, Rate.of(k + undecided, n).verdict
    return low if low == high else None


def _early(first: Rate, control: Rate | None) -> bool | None:
    """More than half gather first in M0, and more than with re-matched heads do in theirs."""
    if first.verdict is True and control is not None and not first.beats(control):
        return None
    return first.verdict


def _outcome(runs: Sequence[LoopRun]) -> str:
    """Where the starts ended and how many, the most frequent first."""
    names = {
        VALUES: "end in the space of sum A",
        PRODUCTS: "end in the space of M0",
        ELSEWHERE: "end elsewhere",
        UNDECIDED: "still moving",
    }
    counts = {end: sum(run.end == end for run in runs) for end in names}
    told = sorted((end for end in names if counts[end]), key=lambda end: -counts[end])
    return ", ".join(f"{counts[end]} {names[end]}" for end in told)


def _quartiles(curves: Sequence[Float[Tensor, "_ k"]], column: int, times: Sequence[int]) -> list[list[float]]:
    """Quartiles over starts at some times; a start that is done stays where it is."""
    rows = torch.stack([torch.stack([curve[min(t, len(curve) - 1), column] for t in times]) for curve in curves])
    levels = torch.tensor([0.25, 0.5, 0.75], dtype=rows.dtype)
    return [[round(x, 4) for x in row] for row in torch.quantile(rows, levels, dim=0).tolist()]
