"""Several heads: the sum (or the average) of the fields of single heads."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metastable.arguments import choice, flag, sequence
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows.attending import AttendingFlow, attention_record
from metastable.flows.drift import Drift, Velocities
from metastable.flows.energy import require_gradient_structure
from metastable.flows.flow import Flow
from metastable.flows.plan import Plan
from metastable.flows.pullback import HeadCotangent, Pullback
from metastable.flows.softmax import SelfAttention
from metastable.flows.stacked_heads import STACKED_SCORES, StackedHeads, stackable
from metastable.flows.unnormalized import UnnormalizedAttention

COMBINE = ("sum", "mean")


class MultiHead(Flow):
    """x_i' = P_{x_i} sum_h F_i^h, every head h with its own weights, beta and field.

    heads: flows, e.g. [SelfAttention(w_1, beta_1), SelfAttention(w_2, beta_2)]. combine: "sum", as a
    transformer layer does, or "mean", the convention (1/H) sum_h of [arXiv:2605.18870]. residual: whether the flow
    is a trained layer, x <- (x + sum_h F^h)/|.|; then Euler with step 1 is that layer (see `Flow.residual`).
    """

    caches = ("_stack", "_stackable")

    def __init__(self, heads: Sequence[Flow], combine: str = "sum", *, residual: bool = False) -> None:
        self.heads = sequence(heads, "heads", Flow, "flows")
        if not self.heads:
            raise InvalidInput("MultiHead needs at least one head, got none")
        if any(head.stochastic for head in self.heads):
            raise InvalidInput("a head has no noise of its own; CommonNoise(MultiHead([...]), ...) adds one to all")
        if len({head.d for head in self.heads}) > 1:
            raise InvalidInput(f"all heads must have one dimension, got {sorted({h.d for h in self.heads})}")
        if len({head.spherical for head in self.heads}) > 1:
            raise InvalidInput("heads on the sphere and Euclidean heads cannot be mixed")
        if len(numbers := {head.systems for head in self.heads if head.systems is not None}) > 1:
            raise InvalidInput(f"heads with a beta per system must agree on their number, got {sorted(numbers)}")
        self.combine = choice(combine, "combine", COMBINE)
        self.spherical = self.heads[0].spherical
        self.smooth = all(head.smooth for head in self.heads)
        self.residual = flag(residual, "residual")
        self._stackable = stackable(self.heads)
        self._stack: StackedHeads | None = None

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return self.heads[0].d

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """Times at which any head's weights jump."""
        return tuple(sorted({t for head in self.heads for t in head.breakpoints}))

    @property
    def time_scale(self) -> float:
        """The shortest of any head."""
        return min(head.time_scale for head in self.heads)

    @property
    def systems(self) -> int | None:
        """How many systems have parameters of their own in any head."""
        return next((head.systems for head in self.heads if head.systems is not None), None)

    def of_system(self, index: int) -> MultiHead:
        """The flow of one of many systems, every head with its own parameters."""
        super().of_system(index)
        if self.systems is None:
            return self
        one = copy.copy(self)
        one.heads = tuple(head.of_system(index) for head in self.heads)
        one._stackable, one._stack = stackable(one.heads), None
        return one

    def evaluate_many(
        self,
        t: Float[Tensor, "b"],
        points: Float[Tensor, "b n d"],
        mass: Float[Tensor, "b n"],
        which: Int[Tensor, "b"],
    ) -> Velocities:
        """All systems at once, head by head."""
        if self._foreign:
            return super().evaluate_many(t, points, mass, which)
        parts = [head.evaluate_many(t, points, mass, which) for head in self.heads]
        vectors, rates = parts[0].vectors, parts[0].rates
        for part in parts[1:]:
            vectors, rates = vectors + part.vectors, rates + part.rates
        return Velocities(self.factor * vectors, self.factor * rates)

    def for_run(self, plan: Plan) -> MultiHead:
        """All heads as the run takes them; heads that are computed at once keep all digits."""
        super().for_run(plan)
        if self._foreign:
            return self
        prepared = copy.copy(self)
        prepared.heads = tuple(head.for_run(plan) for head in self.heads)
        prepared._stack = None
        return prepared

    def record(self) -> dict[str, Any]:
        """The kernels of all heads together; "heads" where they were computed at once, with all digits."""
        parts = [record["attention"] for head in self.heads if "attention" in (record := head.record())]
        if not parts:
            return {}
        used: dict[str, float] = {}
        for part in parts:
            for name in part["kernels"]:
                used[name] = max(used.get(name, 0.0), part["largest_error"] or 0.0)
        tolerances = [part["rtol"] for part in parts if part["rtol"] is not None]
        stacked = {"heads": 0.0} if self._stack is not None else {}
        return attention_record(max(tolerances, default=None), used | stacked)

    def recall(self, record: dict[str, Any]) -> None:
        """Take over the kernels of the run so far."""
        super().recall(record)
        for head in self.heads:
            head.recall(record)

    @property
    def factor(self) -> float:
        """1 for the sum of heads, 1/H for their mean."""
        return 1.0 if self.combine == "sum" else 1.0 / len(self.heads)

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """sum_h F^h before the projection."""
        if self._stacks(points):
            return self._stacked_drift(t, points, mass)
        return self._sum([head.ambient_drift(t, points, mass) for head in self.heads])

    def _stacks(self, points: Float[Tensor, "n d"]) -> bool:
        """Whether all heads are computed at once."""
        return bool(self._stackable) and len(self.heads) * len(points) ** 2 <= STACKED_SCORES

    def _sum(self, drifts: Sequence[Drift]) -> Drift:
        """The heads together."""
        vector = drifts[0].vector
        for drift in drifts[1:]:
            vector = vector + drift.vector
        return Drift(self.factor * vector, lambda: self.factor * sum(drift.rate for drift in drifts))

    def pullback(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Pullback:
        """sum_h F^h and the transpose of its derivative, head by head."""
        if self._foreign:
            return super().pullback(t, points, mass)
        parts = [head.pullback(t, points, mass) for head in self.heads]

        def back(cotangent: Tensor) -> tuple[Tensor, tuple[HeadCotangent, ...]]:
            found = [part.back(self.factor * cotangent) for part in parts]
            return torch.stack([tokens for tokens, _ in found]).sum(0), sum((heads for _, heads in found), ())

        stacked = self._stacks(points)
        drift = self._stacked_drift(t, points, mass) if stacked else self._sum([part.drift for part in parts])
        heads, sure = sum((part.heads for part in parts), ()), all(part.sure for part in parts)
        return Pullback(drift, back, heads, sure)

    def _stacked_drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """The same for few tokens and heads of one low rank, all heads at once."""
        if self._stack is None or not self._stack.fits(points):
            self._stack = StackedHeads.of(self._stackable, points)
        means = self._stack.means(points, mass)

        def rate() -> float:
            return self.factor * sum(h.rate(t, m, mass) for h, m in zip(self._stackable, means, strict=True))

        return Drift(self.factor * self._stack.summed(means), rate)

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """E = sum_h c_h E_h for unnormalised heads with V_h = c_h B_h, B_h symmetric [arXiv:2605.04279].

        A single head has its own energy.

        The softmax flow of several heads does not make E monotone, because every head has its own partition,
        so it has no energy here.
        """
        points, mass = self.tokens(points, mass)
        if len(self.heads) == 1:
            return self.factor * self.heads[0].energy(points, mass, t)
        total = 0.0
        for head in self.heads:
            if not isinstance(head, UnnormalizedAttention) or head.log_scale != 0:
                raise NoEnergy("only unnormalised heads without a change of time add up to a gradient flow")
            total += require_gradient_structure(head.weights_at(t)) * head.energy(points, mass, t)
        return self.factor * total

    def __repr__(self) -> str:
        attending = [head for head in self.heads if isinstance(head, AttendingFlow)]
        betas = sorted(
            {b for h in attending for b in (h.beta.tolist() if isinstance(h.beta, Tensor) else [h.beta])}
        )
        beta = f", beta={'..'.join(f'{end:g}' for end in dict.fromkeys((betas[0], betas[-1])))}" if betas else ""
        many = f"{len(self.heads)} head" + "s" * (len(self.heads) > 1)
        if self._stackable:
            many += f" of rank {self._stackable[0].weights_at(0.0).rank}"
        fields = sum(isinstance(head, SelfAttention) and head.field is not None for head in self.heads)
        more = f", {fields} with a field" * (fields > 0) + ", residual" * self.residual
        return f"MultiHead({many}, d={self.d}{beta}, combine={self.combine!r}{more})"

    def describe(self) -> dict[str, Any]:
        """The heads and how they are combined."""
        described = {"flow": "MultiHead", "combine": self.combine, "heads": [h.describe() for h in self.heads]}
        return described | {"residual": True} if self.residual else described
