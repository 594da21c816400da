"""`CommonNoise`: a flow whose tokens are driven by one random field: the limit of random layers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metastable.arguments import flag, instance, integer, number, shown
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows.covariance import Covariance, as_covariance
from metastable.flows.drift import Drift, Velocities
from metastable.flows.flow import ANY_DIMENSION, Flow
from metastable.flows.gaussian_field import Field, Fresh, Gram, Independent, RandomLayer, exact_field
from metastable.flows.plan import Plan

LARGEST_SCALE = 1e6
"""Largest amplitude of the noise: steps of 1e-12 resolve it."""
MOST_WIDTH = 10**6
"""Largest width of a random layer: its matrices are drawn in every step."""


class CommonNoise(Flow):
    """dx_i = P_{x_i} F_i dt + s P_{x_i} o dW(x_i),   Cov(dW(x), dW(y)) = kappa(<x, y>) I_d dt.

    W is one Gaussian field for all tokens; in Ito's form dx = P F dt + s P dW(x) - s^2 (d-1)/2 kappa(1) x dt. It is
    the limit m, L -> infinity of L layers x <- normalize(x + h F + s sqrt(h/m) W_2 sigma(W_1 x)), h = T/L, with
    standard normal W_1 (m, d) and W_2 (d, m), new in every layer and common to all tokens: kappa(g) =
    E[sigma(z_1) sigma(z_2)]. Source: [arXiv:2604.26898].

    flow: gives F; None for no drift, in any dimension. activation: sigma, by name ("linear", "relu", "tanh",
    "gelu", "erf", "sin", "sigmoid", "silu", "constant") or a smooth function of a tensor. covariance: kappa
    instead, a function of g in [-1, 1] or coefficients c_k of sum_k c_k g^k. scale: s. width: m of layers of finite
    width, which `solve(method="layers", step=T/L)` runs; None for the Gaussian field. independent: a noise of its
    own for every token, for comparison. The field itself is sampled, not a wide layer: polynomial kappas by their
    monomials, for any number of tokens, others by the triangular root of kappa(<x_i, x_j>), n^3/6 operations.

    Its paths are `solve(flow, rho0, t, step=h, seed=0)`: one seed, one path, which steps h/2 refine.

    >>> import metastable as ms
    >>> path = ms.solve(CommonNoise(activation="constant"), ms.sphere.uniform(5, 4), t=9.0, step=0.01, seed=1)
    >>> bool((path.end.points - path.end.points[0]).norm(dim=1).max() < 1e-4)  # all tokens have met
    True
    """

    stochastic: bool = True
    caches: ClassVar[tuple[str, ...]] = ("_field",)

    def __init__(
        self,
        flow: Flow | None = None,
        activation: Any = None,
        covariance: Any = None,
        scale: float = 1.0,
        *,
        width: int | None = None,
        independent: bool = False,
    ) -> None:
        if flow is not None:
            instance(flow, "flow", Flow, "a Flow such as SelfAttention, or None")
            if flow.stochastic or not flow.spherical:
                kind = "has a noise already" if flow.stochastic else "does not live on the sphere"
                raise InvalidInput(f"flow must be one without noise on the sphere, but {shown(flow)} {kind}")
        if (activation is None) == (covariance is None):
            raise InvalidInput("a noise has either an activation= or a covariance=, one of them and not both")
        self.flow = flow
        self.scale = number(scale, "scale", least=0.0, most=LARGEST_SCALE)
        self.independent = flag(independent, "independent")
        self.width = None if width is None else integer(width, "width", least=1, most=MOST_WIDTH)
        self.covariance = as_covariance(covariance) if activation is None else Covariance.of_activation(activation)
        if self.width is not None and (self.covariance.activation is None or self.independent):
            raise InvalidInput("a layer of finite width has an activation=, and is common to all tokens")
        if flow is not None and self.width is None:
            self.covariance.require_positive(flow.d)
            self.smooth = flow.smooth
        self._systems = 1
        self._field: tuple[int, Field] | None = None

    @property
    def d(self) -> int:
        """Dimension of the tokens; without a drift, any."""
        return ANY_DIMENSION if self.flow is None else self.flow.d

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """Those of the drift."""
        return () if self.flow is None else self.flow.breakpoints

    @property
    def systems(self) -> int | None:
        """Those of the drift."""
        return None if self.flow is None or self._systems > 1 else self.flow.systems

    @property
    def features(self) -> bool:
        """Whether the field has finitely many features, or one normal per token, and is cheap at further places."""
        return self.independent or self.width is not None or not isinstance(self.field(max(self.d, 2)), Gram)

    def field(self, d: int) -> Field:
        """The field in dimension d."""
        if self._field is None or self._field[0] != d:
            self._field = d, self._new_field(d)
        return self._field[1]

    def _new_field(self, d: int) -> Field:
        if self.independent:
            return Independent(self.covariance)
        if self.width is not None:
            return RandomLayer(self.covariance.activation, self.width)
        self.covariance.require_positive(d)
        return exact_field(self.covariance, d)

    def abreast(self, systems: int) -> CommonNoise:
        """The flow of so many systems, one after the other among the tokens, each with a noise of its own."""
        many = copy.copy(self)
        many._systems = integer(systems, "systems", least=1)
        return many

    def for_run(self, plan: Plan) -> CommonNoise:
        """With the drift as the run takes it."""
        super().for_run(plan)
        prepared = copy.copy(self)
        prepared.flow = None if self.flow is None else self.flow.for_run(plan)
        return prepared

    def record(self) -> dict[str, Any]:
        """That of the drift."""
        return {} if self.flow is None else self.flow.record()

    def recall(self, record: dict[str, Any]) -> None:
        """Take over the record of the run so far."""
        super().recall(record)
        if self.flow is not None:
            self.flow.recall(record)

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """F, without the noise."""
        if self.flow is None:
            return Drift(torch.zeros_like(points), 0.0)
        if self._systems == 1:
            return self.flow.ambient_drift(t, points, mass)
        which = torch.arange(self._systems)
        x, m = points.view(self._systems, -1, points.shape[1]), mass.view(self._systems, -1)
        times = torch.full((self._systems,), t, dtype=torch.float64)
        return Drift(self.flow.evaluate_many(times, x, m, which).vectors.reshape_as(points), 0.0)

    def evaluate_many(
        self,
        t: Float[Tensor, "b"],
        points: Float[Tensor, "b n d"],
        mass: Float[Tensor, "b n"],
        which: Int[Tensor, "b"],
    ) -> Velocities:
        """Of the drift, without the noise."""
        if self.flow is None:
            return Velocities(torch.zeros_like(points), torch.zeros(len(points), dtype=torch.float64))
        return self.flow.evaluate_many(t, points, mass, which)

    def noise_sizes(self, points: Float[Tensor, "n d"]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of the normals of all systems: those of the Brownian motion, and those new in every step."""
        n, d = len(points) // self._systems, points.shape[1]
        field = self.field(d)
        return (self._systems, *field.size(n, d)), (self._systems, *field.fresh(n, d))

    def noise(
        self, places: Sequence[Float[Tensor, "n d"]], driving: Float[Tensor, "b ..."], fresh: Fresh, duration: float
    ) -> list[Float[Tensor, "n d"]]:
        """s dW at all of the places, one realisation, before the projection."""
        like = places[0]
        shaped = [x.detach().to("cpu", torch.float64).reshape(self._systems, -1, x.shape[1]) for x in places]
        found = self.field(like.shape[1]).at(shaped, driving, fresh, duration)
        return [(self.scale * w).reshape_as(like).to(like) for w in found]

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """That of the drift, which is monotone without the noise only."""
        if self.flow is None:
            raise NoEnergy("a noise without a drift has no energy")
        return self.flow.energy(points, mass, t)

    def describe(self) -> dict[str, Any]:
        """The drift, kappa, scale and width."""
        described: dict[str, Any] = {
            "flow": "CommonNoise",
            "of": None if self.flow is None else self.flow.describe(),
        }
        described |= self.covariance.describe() | {"scale": self.scale, "width": self.width}
        described |= {"independent": self.independent}
        return described if self._systems == 1 else described | {"systems": self._systems}

    def __repr__(self) -> str:
        drift = "" if self.flow is None else f"{self.flow!r}, "
        width = "" if self.width is None else f", width={self.width}"
        return f"CommonNoise({drift}{self.covariance.name}, scale={self.scale:g}{width})"
