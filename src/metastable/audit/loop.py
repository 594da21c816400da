"""The looped layer: the theory's own setting on real weights.

One layer's attention is iterated with renormalisation, s <- (s + C sum_h A_h m_h(s)) / |.|, without the MLP, the
other layers or the residual's gain: that is `solve` on the layer's flow, by Euler's method with steps of one. From
the weights alone the audit forecasts where the tokens go: through the top space of M0 if its eigenvalue is much
larger than that of sum A, and into that of sum A in the end. Then it runs the loop and grades the forecast, beside
the wrong layer and re-matched heads as controls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.audit.factors import Factors
from metastable.audit.heads import WeightAudit
from metastable.audit.top_space import TopSpace, energy_in
from metastable.encoders import Encoder, Layer
from metastable.measure import Measure
from metastable.observe import clusters
from metastable.solve import Observer, solve
from metastable.solve.problem import Step

STEPS = 400
"""Passes through a layer: in all-MiniLM-L6-v2 four layers of six settle before, after 136 to 266 of them."""
TOKENS = 96
"""Tokens that are iterated, at most: enough to see clusters, few enough that a layer takes seconds."""
SETTLED = 1e-7
"""The loop ends when no coordinate of a token moves by as much as this in one pass."""
EARLY_RATIO = 3.0
"""Re lambda(M0) / Re lambda(sum A) above which the early phase is forecast: a rule of thumb, not a theorem."""
EARLY_ENERGY = 0.25
"""Peak energy in the space of M0 that counts as passing through it, if it is twice that of re-matched heads.

A rule of thumb like the ratio above: tokens without preferred direction have about 3% there.
"""
TERMINAL_ENERGY = 0.95
"""Energy in a space from which tokens are said to have ended in it: a rule of thumb."""
CLUSTER_ANGLE = 0.3
"""Tokens that are closer than this angle (17 degrees) belong to one cluster."""
OPPOSITE = -0.9
"""Cosine below which two clusters are called antipodal."""
STRIDE = 0.04
"""Way that a token goes in the plane between two frames of its trajectory (the circle has radius 1)."""
FRAMES = 120
"""Most frames of a trajectory, so that the page stays small."""


@dataclass(frozen=True)
class LoopAudit:
    """One layer iterated: what was forecast, what happened, what the controls say; energies are shares."""

    layer: int
    ratio: float
    forecast_early: bool
    """Forecast: the tokens pass through the dominant space of M0."""
    steps: int
    settled: bool
    terminal_energy: float
    """Energy in the dominant space of sum A at the end."""
    terminal_wrong_layer: float | None
    """The largest energy at the end in the dominant space of another layer's sum A; None for a single layer."""
    early_energy: float
    """The largest energy in the dominant space of M0 on the way."""
    early_energy_end: float
    early_rolled_heads: float | None
    """The largest energy on the way in the dominant space of M0 with re-matched heads; None for a single head."""
    chance: float
    """Energy of tokens without preferred direction in such a space."""
    clusters: int
    antipodal: bool
    """Whether the tokens end as two opposite clusters."""
    passed_early: bool
    """Whether they passed through the space of M0: a quarter of the energy, and twice that of re-matched heads."""
    early_holds: bool
    """Whether the forecast of the early phase (passes through, or does not) was right."""
    terminal_holds: bool
    """Whether the tokens ended in the dominant space of sum A."""
    outcome: str
    curve_steps: list[int] = field(repr=False)
    curve_terminal: list[float] = field(repr=False)
    curve_early: list[float] = field(repr=False)
    trajectory_steps: list[int] = field(repr=False)
    trajectories: list[list[list[float]]] = field(repr=False)
    """Some tokens in the plane of the first two principal directions of the whole run: [token][time][2]."""


def audit_loops(
    encoder: Encoder,
    weights: WeightAudit,
    starts: Float[Tensor, "layers n d"] | None = None,
    *,
    steps: int = STEPS,
    seed: int = 0,
    report: Callable[[str], None] = lambda text: None,
) -> list[LoopAudit]:
    """Iterate every layer from `starts[l]` (the tokens that it sees on text), or from random tokens."""
    result = []
    for layer in encoder.layers:
        report(f"looped layer {layer.index}")
        start = random_tokens(layer, TOKENS, seed) if starts is None else spread(starts[layer.index], TOKENS)
        result.append(_graded(layer, weights, start, steps))
    return result


def random_tokens(layer: Layer, n: int, seed: int = 0) -> Float[Tensor, "n d"]:
    """Tokens without preferred direction on the layer's sphere (centred where its norm centres)."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(n, layer.d, generator=generator, dtype=torch.float64).to(layer.device)
    points = layer.norm.centre(drawn)
    return points / torch.linalg.vector_norm(points, dim=1, keepdim=True)


def spread(points: Float[Tensor, "n d"], n: int) -> Float[Tensor, "m d"]:
    """At most n tokens, evenly spread over the text, on the unit sphere."""
    pick = torch.linspace(0, len(points) - 1, min(n, len(points))).round().long()
    chosen = points[pick]
    return chosen / torch.linalg.vector_norm(chosen, dim=1, keepdim=True).clamp_min(1e-300)


class Settled(Observer):
    """Ends a run when a step moved no token by more than `SETTLED`."""

    reached = False

    def step(self, step: Step) -> bool:
        """Whether the tokens stand still."""
        self.reached = float((step.end.points - step.start.points).abs().max()) < SETTLED
        return self.reached


def looped(layer: Layer, start: Float[Tensor, "n d"], steps: int) -> tuple[Float[Tensor, "t n d"], bool]:
    """The tokens before and after every pass through the layer, and whether they settled before the last one."""
    settled = Settled()
    path = solve(
        layer.flow(), start, t=float(steps), times=range(steps + 1), method="euler", step=1.0, observers=[settled]
    )
    return path.points, settled.reached


def _graded(layer: Layer, weights: WeightAudit, start: Tensor, steps: int) -> LoopAudit:
    frames, settled = looped(layer, start, steps)
    spaces = [(a.to(layer.device), b.to(layer.device)) for a, b in weights.spaces]
    values, products = spaces[layer.index]
    early, terminal = energy_in(products, frames).tolist(), energy_in(values, frames).tolist()
    rematched = None
    factors = Factors.of(layer)
    if len(factors.query) > 1:
        control = TopSpace.of(factors.rematched().sum_products.cpu()).basis.to(layer.device)
        rematched = float(energy_in(control, frames).max())
    end = frames[-1]
    others = [space for l, (space, _) in enumerate(spaces) if l != layer.index]
    groups = clusters(Measure(end.cpu()), angle=CLUSTER_ANGLE)
    ratio = weights.layers[layer.index].ratio
    forecast_early = ratio >= EARLY_RATIO
    times = _log_times(len(frames))
    shown, trajectories = _plane(frames)
    antipodal = len(groups) == 2 and float((end @ end.T).min()) < OPPOSITE
    passed = max(early) >= max(EARLY_ENERGY, 2 * (rematched or 0.0))
    ended = terminal[-1] >= TERMINAL_ENERGY
    return LoopAudit(
        layer=layer.index,
        ratio=ratio,
        forecast_early=forecast_early,
        steps=len(frames) - 1,
        settled=settled,
        terminal_energy=terminal[-1],
        terminal_wrong_layer=max((float(energy_in(space, end)) for space in others), default=None),
        early_energy=max(early),
        early_energy_end=early[-1],
        early_rolled_heads=rematched,
        chance=values.shape[1] / layer.norm.d_eff,
        clusters=len(groups),
        antipodal=antipodal,
        passed_early=passed,
        early_holds=passed == forecast_early,
        terminal_holds=ended,
        outcome=_outcome(passed, ended, early[-1] >= TERMINAL_ENERGY, settled),
        curve_steps=times,
        curve_terminal=[terminal[t] for t in times],
        curve_early=[early[t] for t in times],
        trajectory_steps=shown,
        trajectories=trajectories,
    )


def _outcome(passed: bool, ended: bool, stayed: bool, settled: bool) -> str:
    if ended:
        return "passes through the space of M0, ends in that of sum A" if passed else "ends in the space of sum A"
    if stayed:
        return "ends in the space of M0"
    return "ends elsewhere" if settled else "still moving when the run ended"


def _log_times(length: int, count: int = 48) -> list[int]:
    grid = {0, length - 1, *(round(math.expm1(math.log(length) * i / (count - 1))) for i in range(count))}
    return sorted(t for t in grid if 0 <= t < length)


def _plane(frames: Float[Tensor, "t n d"], tokens: int = 24) -> tuple[list[int], list[list[list[float]]]]:
    """Some tokens in the plane of the first two principal directions of the run, at the steps that show their way.

    A frame is kept when a token went `STRIDE` in the plane since the last one: at most `FRAMES`, and the end.
    """
    rows = frames[_log_times(len(frames))].flatten(0, 1)
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
