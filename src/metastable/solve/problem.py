"""What the steppers work on: the initial value problem, their state, and a finished step with its interpolant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from metastable import rowwise
from metastable.arguments import instance, integer, number, shown
from metastable.attention.lengths import all_finite
from metastable.errors import InvalidInput, SolveError
from metastable.flows.drift import Drift, Velocity
from metastable.flows.flow import Flow
from metastable.flows.pullback import Pullback
from metastable.solve.brownian import Brownian
from metastable.sphere import normalize

FRAMES_AT_ONCE = 32
"""Times inside a step that are asked for together: a step may span any number of save times, and memory may not."""


@dataclass(repr=False)
class Problem:
    """x' = v(t, x) for tokens with fixed masses, with the tolerances and the step that were asked for."""

    flow: Flow
    mass: Float[Tensor, "*b n"]
    rtol: float
    atol: float
    step: float | None
    max_step: float
    stretch_end: float = math.inf
    """End of the stretch on which the field is continuous; at that very time the field is the one before it."""
    stretch_start: float = -math.inf
    """Its start, if the field jumps there; at that very time the field is the one after it."""
    evaluations: int = 0
    start: float = 0.0
    """Where the run began: steps of flows with noise are counted from there."""
    seed: int | None = None
    """Of the noise."""

    def __post_init__(self) -> None:
        instance(self.flow, "flow", Flow, "a Flow such as SelfAttention")
        instance(self.mass, "mass", Tensor, "a tensor")
        self.rtol, self.atol = number(self.rtol, "rtol", least=0), number(self.atol, "atol", least=0)
        self.step = None if self.step is None else number(self.step, "step", above=0)
        self.max_step = number(self.max_step, "max_step", above=0, finite=False)
        self.start = number(self.start, "start")
        self.seed = None if self.seed is None else integer(self.seed, "seed")
        self._brownian: Brownian | None = None

    def velocity(self, t: float, points: Float[Tensor, "n d"], out: Float[Tensor, "n d"] | None = None) -> Velocity:
        """The field at time t, at points that `retract` or `combine` returned, and the rate that bounds a step."""
        self.evaluations += 1
        return self.flow.evaluate(self._inside(t), points, self.mass, unit=True, out=out)

    def drift(self, t: float, points: Float[Tensor, "n d"]) -> Drift:
        """The field at time t before its projection to the sphere."""
        self.evaluations += 1
        return self.flow.ambient_drift(self._inside(t), points, self.mass)

    def pullback(self, t: float, points: Float[Tensor, "n d"]) -> Pullback:
        """The field at time t before its projection, with the transpose of its derivative."""
        self.evaluations += 1
        return self.flow.pullback(self._inside(t), points, self.mass)

    def projected(self, points: Float[Tensor, "n d"], drift: Drift) -> Float[Tensor, "n d"]:
        """The velocity that a drift gives, to the digits of `velocity`."""
        return self.flow._projected(points, drift)

    def brownian(self, shape: tuple[int, ...]) -> Brownian:
        """The Brownian motion of the run, with its memory of the last step."""
        if self._brownian is None or self._brownian.shape != shape:
            assert self.step is not None
            self._brownian = Brownian(self.seed or 0, self.step, shape)
        return self._brownian

    def _inside(self, t: float) -> float:
        """The time at which the field is that of the stretch, also at its very ends."""
        return max(min(t, math.nextafter(self.stretch_end, -math.inf)), self.stretch_start)

    def combine(
        self, points: Float[Tensor, "n d"], stages: Float[Tensor, "s n d"], weights: Float[Tensor, "s"]
    ) -> Float[Tensor, "n d"]:
        """x + sum_j w_j k_j, back on the sphere."""
        return rowwise.combine(points, stages, weights, unit=self.flow.spherical)

    def retract(self, points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Back to the sphere (nothing to do for a Euclidean flow)."""
        return normalize(points) if self.flow.spherical else points

    def __repr__(self) -> str:
        step = "" if self.step is None else f", step={self.step:g}"
        return f"Problem({type(self.flow).__name__}, rtol={self.rtol:g}, atol={self.atol:g}{step})"


@dataclass(frozen=True, eq=False, repr=False)
class State:
    """Everything that a stepper needs to go on: writing it and reading it back continues at the same digits."""

    t: float
    points: Float[Tensor, "n d"]
    slope: Float[Tensor, "n d"] | None = None
    rate: float = 0.0
    step: float = 0.0
    last_error: float = 1.0
    accepted: int = 0
    rejected: int = 0

    def __post_init__(self) -> None:
        if not (isinstance(self.t, float) and isinstance(self.points, Tensor) and self.points.ndim == 2):
            number(self.t, "t")
            raise InvalidInput(f"the points of a State must be a tensor (n, d), got {shown(self.points)}")

    def __repr__(self) -> str:
        n, d = self.points.shape
        return f"State(t = {self.t:g}, {n} tokens in R^{d}, {self.accepted} steps)"


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """A step from `start` to `end`, with the tokens in between."""

    start: State
    end: State
    interpolate: Callable[[Sequence[float]], list[Tensor]]
    """The tokens at times inside the step; valid until the stepper makes its next step."""
    ended: bool = False
    """Whether an observer ended the run here."""
    tried: float = math.inf
    """A limit that a rejected step would have ended at, or that this one is half way to: to a later limit it would
    be another one."""

    def __post_init__(self) -> None:
        if not (isinstance(self.start, State) and isinstance(self.end, State) and callable(self.interpolate)):
            given = (
                self.interpolate if isinstance(self.start, State) and isinstance(self.end, State) else self.start
            )
            raise InvalidInput(f"a Step is made of two States and a function between them, got {shown(given)}")

    @classmethod
    def at_rest(cls, state: State) -> Step:
        """The step of length zero with which a run begins."""
        return cls(state, state, lambda times: [state.points for _ in times])

    @property
    def t(self) -> float:
        """The time reached."""
        return self.end.t

    @property
    def points(self) -> Float[Tensor, "n d"]:
        """The tokens at that time."""
        return self.end.points

    def at(self, times: Sequence[float]) -> list[Tensor]:
        """The tokens at increasing times inside the step; at its end they are the computed ones, bit for bit."""
        inside = [time for time in times if not reached(time, self.t)]
        return (self.interpolate(inside) if inside else []) + [self.points] * (len(times) - len(inside))

    def cut(self, t: float) -> Step:
        """The part of the step up to time t, as the last one of the run."""
        if t >= self.t:
            return replace(self, ended=True)
        end = State(t, self.interpolate([t])[0], accepted=self.end.accepted, rejected=self.end.rejected)
        return Step(self.start, end, self.interpolate, ended=True)

    def __repr__(self) -> str:
        n, d = self.points.shape
        return f"Step(t = {self.start.t:g} .. {self.t:g}, {n} tokens in R^{d}{', the last' if self.ended else ''})"


def cubic_hermite(
    problem: Problem, start: State, end: State, end_slope: Callable[[], Tensor]
) -> Callable[[Sequence[float]], list[Tensor]]:
    """Interpolant of order 3 from the points and velocities at both ends, for the fixed-step methods.

    end_slope: gives the velocity at the end, and is asked only when there is something to interpolate.
    """
    h = end.t - start.t
    slope = start.slope
    assert slope is not None

    def interpolate(times: Sequence[float]) -> list[Tensor]:
        frames = []
        for time in times:
            s = (time - start.t) / h
            frame = (
                (1 + 2 * s) * (1 - s) ** 2 * start.points
                + s**2 * (3 - 2 * s) * end.points
                + h * (s * (1 - s) ** 2 * slope + s**2 * (s - 1) * end_slope())
            )
            frames.append(problem.retract(frame))
        return frames

    return interpolate


def require_finite(points: Tensor, t: float, method: str) -> None:
    """End the run when the tokens are not finite any more."""
    if not all_finite(points):
        raise SolveError(
            f"token {_first_not_finite(points)} is not finite any more at t = {t:.6g} with method {method!r}; use "
            "a smaller step, or the method 'adaptive'"
        )


def require_finite_velocity(velocity: Tensor, t: float, flow: Flow) -> None:
    """End the run when the field is not a number."""
    if not all_finite(velocity):
        raise SolveError(
            f"the velocity of token {_first_not_finite(velocity)} is not finite at t = {t:.6g}; that is what "
            f"{type(flow).__name__} returned there"
        )


def _first_not_finite(rows: Tensor) -> int:
    return int((~torch.isfinite(rows).all(dim=1)).nonzero()[0])


def reached(t: float, time: float) -> bool:
    """Whether a run at t has reached `time`, which only rounding may separate from it."""
    return time <= t or time - t <= 4 * math.ulp(t)


def next_time(t: float, h: float, limit: float) -> float:
    """t + h, or `limit` itself when only rounding is left between them."""
    after = t + h
    return (
        limit if after >= limit or limit - after <= 1e-9 * h or math.isclose(after, limit, rel_tol=1e-14) else after
    )
