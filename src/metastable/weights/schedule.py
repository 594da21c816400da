"""`Schedule`: weights that depend on time, smoothly, in layers, or at random."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from metastable.arguments import flag, function, number, numbers, sequence, shown
from metastable.errors import InvalidInput, MetastableError
from metastable.weights.head import AttentionWeights
from metastable.weights.ornstein_uhlenbeck import NOISE, OrnsteinUhlenbeck
from metastable.weights.target import Target

ROUNDING = 1e-12
"""Relative difference below which two times are one: a few thousand rounding errors of sums of steps."""
DIVIDES = 1e-9
"""How far from whole the number of steps in a layer may be, as in the steppers, which end a stretch where less than
this part of a step is left."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Weights that depend on time: t -> AttentionWeights.

    `Schedule(function)` for a smooth dependence, `Schedule.layers([w_1, ..., w_L], t)` for L layers that share
    [0, t] equally (real layers: piecewise constant). `breakpoints` are the times at which the weights jump; the
    integrators stop there, so that a jump costs no accuracy. `time_scale` is the shortest time in which the weights
    change and change back (the width of a pulse, half the period of an oscillation), which the adaptive method does
    not step over; None has it found by probing (`flows.time_scale` says what that sees). After `end` there are no
    weights.

    >>> Schedule(lambda t: AttentionWeights(V=[[1.0 + t]], B=[[1.0]]))(0.5).V
    tensor([[1.5000]], dtype=torch.float64)
    """

    function: Callable[[float], AttentionWeights]
    breakpoints: tuple[float, ...] = ()
    piecewise_constant: bool = False
    time_scale: float | None = None
    end: float = math.inf

    def __post_init__(self) -> None:
        function(self.function, "the function of a Schedule")
        jumps = tuple(sorted(set(numbers(self.breakpoints, "breakpoints"))))
        scale = None if self.time_scale is None else number(self.time_scale, "time_scale", above=0, finite=False)
        object.__setattr__(self, "breakpoints", jumps)
        object.__setattr__(self, "piecewise_constant", flag(self.piecewise_constant, "piecewise_constant"))
        object.__setattr__(self, "time_scale", scale)
        object.__setattr__(self, "end", number(self.end, "end", above=0, finite=False))

    @classmethod
    def layers(cls, layers: Sequence[AttentionWeights], t: float, knots: Sequence[float] | None = None) -> Schedule:
        """Piecewise constant weights until t: layer l on [knots[l], knots[l+1]), by default L equal parts."""
        stack = sequence(layers, "layers", AttentionWeights, "AttentionWeights")
        if not stack:
            raise InvalidInput("a layered schedule needs at least one layer, got none")
        end = number(t, "t", above=0)
        if knots is None:
            edges = [end * l / len(stack) for l in range(len(stack) + 1)]
        else:
            edges = numbers(knots, "knots", increasing=True)
            if len(edges) != len(stack) + 1:
                raise InvalidInput(f"{len(stack)} layers need {len(stack) + 1} knots, got {len(edges)}")
            if not math.isclose(edges[-1], end, rel_tol=ROUNDING):
                raise InvalidInput(f"the last of the knots must be t = {end:g}, got {edges[-1]:g}")
        if len({w.d for w in stack}) > 1:
            raise InvalidInput(f"all layers must have one dimension, got {shown(sorted({w.d for w in stack}))}")

        def layer_at(time: float) -> AttentionWeights:
            return stack[min(max(bisect.bisect_right(edges, time) - 1, 0), len(stack) - 1)]

        return cls(layer_at, tuple(edges[1:-1]), piecewise_constant=True, end=end)

    @classmethod
    def ornstein_uhlenbeck(
        cls,
        d: int,
        t: float,
        *,
        heads: int = 1,
        noise: float = NOISE,
        steps: int | None = None,
        start: Any = None,
        seed: int = 0,
        descent: bool = True,
    ) -> tuple[Schedule, ...]:
        """One schedule per head until t: B = D_h and V = -D_h, dD_h = (I - D_h) dt + sqrt(noise) dW.

        The arguments are those of `OrnsteinUhlenbeck`. descent: V = -D_h, with which attention lowers its energy,
        as in [arXiv:2605.18870]; False has V = D_h.

        >>> schedule, = Schedule.ornstein_uhlenbeck(3, 20.0, seed=42)
        >>> bool((schedule(0.3).V == -schedule(0.3).B).all())
        True
        """
        target = Target.resting(d, heads)
        return cls._per_head(OrnsteinUhlenbeck(target, t, steps, noise, start, seed), descent)

    @classmethod
    def oscillating(
        cls,
        d: int,
        t: float,
        *,
        heads: int = 1,
        noise: float = NOISE,
        steps: int | None = None,
        start: Any = None,
        seed: int = 0,
        descent: bool = True,
    ) -> tuple[Schedule, ...]:
        """The same with dD_h = (A_h(t) - D_h) dt + sqrt(noise) dW, A the oscillating target, phases 2 pi h/H."""
        target = Target.oscillating(d, heads)
        return cls._per_head(OrnsteinUhlenbeck(target, t, steps, noise, start, seed), descent)

    @classmethod
    def _per_head(cls, process: OrnsteinUhlenbeck, descent: bool) -> tuple[Schedule, ...]:
        sign, kinks = -1.0 if flag(descent, "descent") else 1.0, tuple(process.times[1:-1].tolist())
        parts = [_OneHead(process, h, sign) for h in range(process.heads)]
        # No step goes beyond a kink, so that there is nothing to probe for.
        return tuple(cls(part, kinks, time_scale=process.step, end=process.t) for part in parts)

    def __call__(self, t: float) -> AttentionWeights:
        """The weights at time t (right-continuous at breakpoints)."""
        if t > self.end * (1 + ROUNDING):
            raise InvalidInput(f"the schedule has no weights after t = {self.end:g}, asked for t = {t:g}")
        try:
            weights = self.function(t)
        except MetastableError:
            raise
        except Exception as error:
            reason = shown(f"{type(error).__name__}: {error}")[1:-1]
            raise InvalidInput(f"the function of a Schedule failed at t = {t:g}: {reason}") from error
        if not isinstance(weights, AttentionWeights):
            raise InvalidInput(
                f"a Schedule must return AttentionWeights, got {type(weights).__name__} at t = {t:g}"
            )
        return weights

    def check_run(self, start: float, stop: float, step: float | None) -> None:
        """Refuse a run that outlasts the schedule, and a step that would be cut short by the end of a layer."""
        if stop > self.end * (1 + ROUNDING):
            raise InvalidInput(
                f"the schedule has no weights after t = {self.end:g}, but the run goes on to t = {stop:g}; give "
                f"t = {self.end:g}, or more layers"
            )
        if step is None or not self.piecewise_constant:
            return
        edges = [start]
        for b in self.breakpoints:
            if b > start and not _same_time(b, edges[-1]) and b < stop and not _same_time(b, stop):
                edges.append(b)
        if self.end <= stop * (1 + ROUNDING) and not _same_time(start, stop):
            edges.append(stop)
        for before, after in itertools.pairwise(edges):
            parts = (after - before) / step
            if abs(parts - round(parts)) > DIVIDES or parts < 0.5:
                whole = (after - before) / max(1, math.ceil(parts - DIVIDES))
                raise InvalidInput(
                    f"step = {step:g} does not divide the layer from t = {before:g} to {after:g}; give step = "
                    f"{whole:.10g}, or a whole part of it"
                )

    def __repr__(self) -> str:
        if self.piecewise_constant and math.isfinite(self.end):
            return f"Schedule({len(self.breakpoints) + 1} layers until t = {self.end:g})"
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        jumps = f", {len(self.breakpoints)} breakpoints" if self.breakpoints else ""
        scale = "" if self.time_scale is None else f", time_scale={self.time_scale:g}"
        return f"Schedule({name}{jumps}{scale})"


@dataclass(frozen=True, eq=False)
class _OneHead:
    """t -> V = sign D_h(t), B = D_h(t)."""

    process: OrnsteinUhlenbeck
    head: int
    sign: float

    def __call__(self, t: float) -> AttentionWeights:
        D = self.process(t)[self.head]
        return AttentionWeights(V=self.sign * D, B=D)

    def describe(self) -> dict[str, Any]:
        """The process, and which head of it."""
        return {"process": self.process.describe(), "head": self.head, "sign": self.sign}


def _same_time(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=ROUNDING)
