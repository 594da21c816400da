"""`Flow`: what every right-hand side is, and what the integrators may ask of it."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metastable import rowwise
from metastable.arguments import instance, integer, number, shown
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows.drift import Drift, Velocities, Velocity, checked
from metastable.flows.identity import describe_weights, identity, ours
from metastable.flows.plan import Plan
from metastable.flows.pullback import Pullback, by_autograd
from metastable.flows.time_scale import time_scale
from metastable.measure import as_tensor
from metastable.sphere import normalize
from metastable.weights import AttentionWeights, Schedule


class Flow(ABC):
    """A flow x_i' = P_{x_i} F_i(t, x, m) of tokens with masses on the sphere (or x_i' = F_i in R^d).

    A subclass gives `d` and `drift`; all else has a default. The field is extended to |x| != 1 as a 0-homogeneous
    function, P_x F(x/|x|), so that the stages of a Runge-Kutta step may leave the sphere without losing an order.

    >>> class Gather(Flow):
    ...     d = 2
    ...     def drift(self, t, points, mass):
    ...         return (mass @ points).expand_as(points)
    >>> Gather().velocity(0.0, torch.eye(2), torch.tensor([0.5, 0.5]))
    tensor([[0.0000, 0.5000],
            [0.5000, 0.0000]])
    """

    spherical: bool = True
    smooth: bool = True
    """False for a field with jumps at unknown places, on which plain error control only wastes steps."""
    residual: bool = False
    """True for a trained layer, which adds F itself and normalises: Euler then steps x <- (x + h F)/|x + h F|."""
    caches: ClassVar[tuple[str, ...]] = ()
    """Attributes that are only memory, and no part of what tells this flow from others (see `describe`)."""

    _foreign: ClassVar[bool] = False
    """Whether the class was written outside this package, so that its drift is checked every time."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._foreign = not ours(cls.__module__)

    @property
    @abstractmethod
    def d(self) -> int:
        """Dimension of the tokens."""

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """Times at which the field jumps; the integrators stop and restart there."""
        return ()

    @property
    def time_scale(self) -> float:
        """The shortest time in which the field changes by itself and back, such as the width of a pulse.

        The adaptive method makes no longer step, so that no pulse lies unseen between its stages.
        """
        return math.inf

    @abstractmethod
    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift | Tensor:
        """F(t, x, m) at tokens on the sphere, before the tangent projection: a tensor (n, d), or a `Drift`."""

    def ambient_drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """F as `drift` gives it, checked, with a Lipschitz constant: its own, or one that is estimated."""
        drift = self.drift(t, points, mass)
        if self._foreign or not isinstance(drift, Drift):
            drift = checked(drift, points, self)
        if drift.lipschitz is not None:
            return drift
        return Drift(drift.values, lambda: self._estimated_rate(t, points, mass, drift), drift.matrix)

    def velocity(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Float[Tensor, "n d"]:
        """x' = P_x F(t, x/|x|, m), tangent to the sphere (F itself for a Euclidean flow)."""
        return self.evaluate(number(t, "t"), *self.tokens(points, mass)).vector

    def tokens(self, points: Any, mass: Any) -> tuple[Float[Tensor, "n d"], Float[Tensor, "n"]]:
        """Tokens and masses from outside, as tensors on which the flow is defined."""
        if self.systems is not None:
            raise InvalidInput(one_system(self))
        x, m = (_floating(given, name) for given, name in ((points, "points"), (mass, "mass")))
        if x.ndim != 2 or x.shape[0] < 1 or x.shape[1] != self.d:
            raise InvalidInput(f"points must have shape (n, {self.d}), got {shown(x)}")
        if m.shape != x.shape[:1] or m.device != x.device:
            raise InvalidInput(f"mass must have shape ({len(x)},) like the points, got {shown(m)}")
        return x, m.to(x.dtype)

    def evaluate(
        self,
        t: float,
        points: Float[Tensor, "n d"],
        mass: Float[Tensor, "n"],
        *,
        unit: bool = False,
        out: Float[Tensor, "n d"] | None = None,
    ) -> Velocity:
        """The velocity together with the rate that bounds the step.

        unit: |x| = 1 already. out: memory for the velocity.
        """
        x = points if unit or not self.spherical else normalize(points)
        drift = self.ambient_drift(t, x, mass)
        return Velocity(self._projected(x, drift, out), drift.lipschitz)

    def pullback(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Pullback:
        """F at tokens with |x| = 1 and the transpose of its derivative, for the adjoint of a run.

        By default torch differentiates the drift with respect to the tokens.
        """
        return by_autograd(self, t, points, mass)

    @property
    def systems(self) -> int | None:
        """For how many systems the flow has parameters of their own, such as a beta each; None for one of all."""
        return None

    def of_system(self, index: int) -> Flow:
        """The flow of one of many systems, with its own parameters; the flow itself where they have none."""
        integer(index, "index", least=0, most=None if self.systems is None else self.systems - 1)
        return self

    def evaluate_many(
        self,
        t: Float[Tensor, "b"],
        points: Float[Tensor, "b n d"],
        mass: Float[Tensor, "b n"],
        which: Int[Tensor, "b"],
    ) -> Velocities:
        """The velocities of systems number `which` at tokens with |x| = 1, each at its own time, and their rates.

        By default one system after the other; flows that know how compute all of them at once.
        """
        found = [
            self.of_system(s).evaluate(time, x, m, unit=True)
            for s, time, x, m in zip(which.tolist(), t.tolist(), points, mass, strict=True)
        ]
        rates = torch.tensor([v.rate for v in found], dtype=torch.float64)
        return Velocities(torch.stack([v.vector for v in found]), rates)

    def for_run(self, plan: Plan) -> Flow:
        """The flow as a run with this plan takes it: itself, or a copy that knows the run's tolerance and interval.

        Refuses a run that it cannot make.
        """
        instance(plan, "plan", Plan, "the Plan of a run")
        return self

    def record(self) -> dict[str, Any]:
        """What the flow has to say of a run that it made, for the provenance of the path."""
        return {}

    def recall(self, record: dict[str, Any]) -> None:
        """Go on with the record of a run that was interrupted."""
        instance(record, "record", dict, "the record of a run")

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """The functional that the flow increases (or decreases) along every path, where one exists."""
        raise NoEnergy(f"{type(self).__name__} is not a gradient flow, so it has no energy")

    def describe(self) -> dict[str, Any]:
        """Everything that defines the flow, for provenance: plain numbers, strings, lists.

        Runs with equal descriptions and tokens count as one run. By default a flow that was written outside this
        package is described by its class, a digest of its code and attributes, and its plain parameters.
        """
        return {"flow": type(self).__name__} | identity(self, self.caches)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(d={self.d})"

    def _projected(self, x: Tensor, drift: Drift, out: Tensor | None = None) -> Tensor:
        if self.spherical:
            return rowwise.project_applied(x, drift.values, drift.matrix, out)
        return drift.vector if out is None else out.copy_(drift.vector)

    def _estimated_rate(self, t: float, points: Tensor, mass: Tensor, drift: Drift) -> float:
        """max_i |v_i(x + e v) - v_i(x)| / max_i |e v_i|: the change of the field along the flow itself.

        It is at most the Lipschitz constant, so it never costs more steps than that would; what it does not see (a
        stiff direction in which nothing moves yet), the error control of the adaptive method does.
        """
        here = self._projected(points, drift)
        speed = float(torch.linalg.vector_norm(here, dim=1).max())
        if not 0 < speed < float("inf"):
            return 0.0
        # Half of the digits: the difference keeps the other half.
        distance = torch.finfo(points.dtype).eps ** 0.5 * max(1.0, float(points.abs().max()))
        moved = points + (distance / speed) * here
        if self.spherical:
            moved = normalize(moved)
        there = self._projected(moved, checked(self.drift(t, moved, mass), moved, self))
        return float(torch.linalg.vector_norm(there - here, dim=1).max()) / distance


class WeightedFlow(Flow):
    """A flow with one set of weights (V, B), constant or a `Schedule` in time."""

    caches: ClassVar[tuple[str, ...]] = ("_first", "_moved", "_time_scale")

    def __init__(self, weights: AttentionWeights | Schedule) -> None:
        instance(weights, "weights", (AttentionWeights, Schedule), "AttentionWeights or a Schedule")
        self.weights = weights
        self._first = weights if isinstance(weights, AttentionWeights) else weights(0.0)
        self._moved: tuple[AttentionWeights, AttentionWeights] | None = None
        self._time_scale = math.inf

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return self._first.d

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """Times at which the scheduled weights jump."""
        return self.weights.breakpoints if isinstance(self.weights, Schedule) else ()

    @property
    def time_scale(self) -> float:
        """Of the scheduled weights: what the `Schedule` states, or in a run what probing finds; else infinite."""
        stated = self.weights.time_scale if isinstance(self.weights, Schedule) else None
        return self._time_scale if stated is None else stated

    def for_run(self, plan: Plan) -> Self:
        """With scheduled weights: a copy that knows how fast they change in the run."""
        instance(plan, "plan", Plan, "the Plan of a run")
        if not isinstance(self.weights, Schedule):
            return self
        self.weights.check_run(plan.start, plan.stop, plan.step)
        prepared = self if self._foreign else copy.copy(self)
        if self.weights.time_scale is None:
            prepared._time_scale = time_scale(self.weights, plan.start, plan.stop)
        return prepared

    def weights_at(self, t: float, like: Tensor | None = None) -> AttentionWeights:
        """The weights at time t, in the precision and on the device of the tokens `like`."""
        w = self.weights if isinstance(self.weights, AttentionWeights) else self.weights(t)
        if like is None or (w.value.dtype == like.dtype and w.value.device == like.device):
            return w
        if self._moved is None or self._moved[0] is not w:
            self._moved = (w, w.to(device=like.device, dtype=like.dtype))
        return self._moved[1]

    def describe(self) -> dict[str, Any]:
        """Name and weights of the flow, and the time scale that their schedule states."""
        described = super().describe() | {"weights": describe_weights(self.weights)}
        stated = self.weights.time_scale if isinstance(self.weights, Schedule) else None
        return described if stated is None else described | {"time_scale": stated}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.weights!r})"


def one_system(flow: Flow) -> str:
    """What to say where the flow of many systems meets one."""
    return f"this flow has a beta for each of {flow.systems} systems; flow.of_system(s) is the flow of one"


def _floating(values: Any, name: str) -> Tensor:
    """A floating tensor in the precision that it has, anything else in float64."""
    if rowwise.dense(values) and values.dtype in (torch.float32, torch.float64) and not values.requires_grad:
        return values
    return as_tensor(values, name)
