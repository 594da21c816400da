"""`Flow`: what every right-hand side is, and what the integrators may ask of it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable import rowwise
from metastable.errors import InvalidInput, NoEnergy
from metastable.sphere import normalize
from metastable.weights import AttentionWeights, Schedule


@dataclass(frozen=True, eq=False)
class Drift:
    """The ambient velocity F_i = A a_i before the tangent projection, and how fast the flow can change.

    The factors stay apart, so that the matrix and the projection are one pass over the tokens; `measure_rate` is
    called only where a step is chosen.
    """

    carried: Float[Tensor, "n v"]
    measure_rate: Callable[[], float]
    matrix: Float[Tensor, "v d"] | None = None
    """A^T, if the velocity is not `carried` itself."""

    @property
    def vector(self) -> Float[Tensor, "n d"]:
        """F, multiplied out."""
        return self.carried if self.matrix is None else rowwise.apply(self.carried, self.matrix)

    @property
    def rate(self) -> float:
        """Estimate of the Lipschitz constant of the field (1/time): the integrators keep step * rate bounded."""
        return self.measure_rate()


class Flow(ABC):
    """A flow x_i' = P_{x_i} F_i(t, x, m) of tokens with masses on the sphere (or x_i' = F_i in R^d).

    A subclass gives `drift`. The field is extended to |x| != 1 as a 0-homogeneous function, P_x F(x/|x|), so
    that the stages of a Runge-Kutta step may leave the sphere without losing an order.
    """

    spherical: bool = True
    smooth: bool = True
    """False for a field with jumps at unknown places, on which error control only wastes steps."""
    residual: bool = False
    """True for a trained layer, which adds F itself and normalises: Euler then steps x <- (x + h F)/|x + h F|."""

    @property
    @abstractmethod
    def d(self) -> int:
        """Dimension of the tokens."""

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """Times at which the field jumps; the integrators stop and restart there."""
        return ()

    @abstractmethod
    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """F(t, x, m) at tokens on the sphere, before the tangent projection."""

    def velocity(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Float[Tensor, "n d"]:
        """x' = P_x F(t, x/|x|, m), tangent to the sphere (F itself for a Euclidean flow)."""
        return self.evaluate(t, points, mass).vector

    def evaluate(
        self,
        t: float,
        points: Float[Tensor, "n d"],
        mass: Float[Tensor, "n"],
        *,
        unit: bool = False,
        out: Float[Tensor, "n d"] | None = None,
    ) -> Drift:
        """The velocity together with the rate that bounds the step.

        unit: |x| = 1 already. out: memory for the velocity.
        """
        if not self.spherical:
            drift = self.drift(t, points, mass)
            velocity = drift.vector if out is None else out.copy_(drift.vector)
        else:
            x = points if unit else normalize(points)
            drift = self.drift(t, x, mass)
            velocity = rowwise.project_applied(x, drift.carried, drift.matrix, out)
        return Drift(velocity, drift.measure_rate)

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """The functional that the flow increases (or decreases) along every path, where one exists."""
        raise NoEnergy(f"{type(self).__name__} is not a gradient flow, so it has no energy")

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Everything that defines the flow, for provenance: plain numbers, strings, lists."""


class WeightedFlow(Flow):
    """A flow with one set of weights (V, B), constant or a `Schedule` in time."""

    def __init__(self, weights: AttentionWeights | Schedule) -> None:
        if not isinstance(weights, AttentionWeights | Schedule):
            raise InvalidInput(f"weights must be AttentionWeights or a Schedule, got {type(weights).__name__}")
        self.weights = weights
        self._first = weights if isinstance(weights, AttentionWeights) else weights(0.0)
        self._moved: tuple[AttentionWeights, AttentionWeights] | None = None

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return self._first.d

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """Times at which the scheduled weights jump."""
        return self.weights.breakpoints if isinstance(self.weights, Schedule) else ()

    def weights_at(self, t: float, like: Tensor | None = None) -> AttentionWeights:
        """The weights at time t, in the precision and on the device of the tokens `like`."""
        w = self.weights if isinstance(self.weights, AttentionWeights) else self.weights(t)
        if like is None or (w.value.dtype == like.dtype and w.value.device == like.device):
            return w
        if self._moved is None or self._moved[0] is not w:
            self._moved = (w, w.to(device=like.device, dtype=like.dtype))
        return self._moved[1]

    def describe(self) -> dict[str, Any]:
        """Name and weights of the flow."""
        return {"flow": type(self).__name__, "weights": describe_weights(self.weights)}


def describe_weights(weights: AttentionWeights | Schedule) -> dict[str, Any]:
    """Weights for provenance: their digest always, their entries when they are few."""
    if isinstance(weights, Schedule):
        # A function has no digest; its values have one. Irregular times, so that periodic schedules differ, too.
        knots = [0.0, *weights.breakpoints]
        times = knots + ([] if weights.piecewise_constant else [0.37 * 1.5**k for k in range(-12, 13)])
        name = getattr(weights.function, "__qualname__", type(weights.function).__name__)
        values = [describe_weights(weights(t)) for t in times]
        return {"schedule": name, "times": times, "weights": values}
    digest = hashlib.sha256()
    for tensor in (weights.query, weights.key, weights.value, weights.output, weights.dense_B):
        if tensor is not None:
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.detach().to("cpu", torch.float64).contiguous().numpy().tobytes())
    described: dict[str, Any] = {"d": weights.d, "rank": weights.rank, "sha256": digest.hexdigest()}
    if weights.d <= 16:
        described |= {"V": weights.V.tolist(), "B": weights.B.tolist()}
    return described
