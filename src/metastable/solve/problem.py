"""What the steppers work on: the initial value problem, their state, and a finished step with its interpolant."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from jaxtyping import Float
from torch import Tensor

from metastable import rowwise
from metastable.attention.lengths import all_finite
from metastable.errors import SolveError
from metastable.flows.drift import Drift, Velocity
from metastable.flows.flow import Flow
from metastable.sphere import normalize

FRAMES_AT_ONCE = 32
"""Times inside a step that are asked for together: a step may span any number of save times, and memory may not."""


@dataclass
class Problem:
    """x' = v(t, x) for tokens with fixed masses, with the tolerances and the step that were asked for."""

    flow: Flow
    mass: Float[Tensor, "n"]
    rtol: float
    atol: float
    step: float | None
    max_step: float
    stretch_end: float = math.inf
    """End of the stretch on which the field is continuous; at that very time the field is the one before it."""
    evaluations: int = 0

    def velocity(self, t: float, points: Float[Tensor, "n d"], out: Float[Tensor, "n d"] | None = None) -> Velocity:
        """The field at time t, at points that `retract` or `combine` returned, and the rate that bounds a step."""
        self.evaluations += 1
        return self.flow.evaluate(self._inside(t), points, self.mass, unit=True, out=out)

    def drift(self, t: float, points: Float[Tensor, "n d"]) -> Drift:
        """The field at time t before its projection to the sphere."""
        self.evaluations += 1
        return self.flow.ambient_drift(self._inside(t), points, self.mass)

    def _inside(self, t: float) -> float:
        """The time at which the field is that of the stretch, also at its very end."""
        return min(t, math.nextafter(self.stretch_end, -math.inf))

    def combine(
        self, points: Float[Tensor, "n d"], stages: Float[Tensor, "s n d"], weights: Float[Tensor, "s"]
    ) -> Float[Tensor, "n d"]:
        """x + sum_j w_j k_j, back on the sphere."""
        return rowwise.combine(points, stages, weights, unit=self.flow.spherical)

    def retract(self, points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Back to the sphere (nothing to do for a Euclidean flow)."""
        return normalize(points) if self.flow.spherical else points


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class Step:
    """A step from `start` to `end`, with the tokens in between."""

    start: State
    end: State
    interpolate: Callable[[Sequence[float]], list[Tensor]] = field(repr=False)
    """The tokens at times inside the step; valid until the stepper makes its next step."""
    ended: bool = False
    """Whether an observer ended the run here."""

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
        inside = [time for time in times if time < self.t]
        return (self.interpolate(inside) if inside else []) + [self.points] * (len(times) - len(inside))

    def cut(self, t: float) -> Step:
        """The part of the step up to time t, as the last one of the run."""
        if t >= self.t:
            return replace(self, ended=True)
        end = State(t, self.interpolate([t])[0], accepted=self.end.accepted, rejected=self.end.rejected)
        return Step(self.start, end, self.interpolate, ended=True)


def cubic_hermite(problem: Problem, start: State, end: State, end_slope: Tensor) -> Callable[..., list[Tensor]]:
    """Interpolant of order 3 from the points and velocities at both ends, for the fixed-step methods."""
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
                + h * (s * (1 - s) ** 2 * slope + s**2 * (s - 1) * end_slope)
            )
            frames.append(problem.retract(frame))
        return frames

    return interpolate


def require_finite(points: Tensor, t: float, method: str) -> None:
    """End the run when the tokens are not finite any more."""
    if not all_finite(points):
        raise SolveError(
            f"the tokens are not finite any more at t = {t:.6g} with method {method!r}; use a smaller step, or the "
            "method 'adaptive'"
        )


def next_time(t: float, h: float, limit: float) -> float:
    """t + h, or `limit` itself when only rounding is left between them."""
    after = t + h
    return (
        limit if after >= limit or limit - after <= 1e-9 * h or math.isclose(after, limit, rel_tol=1e-14) else after
    )
