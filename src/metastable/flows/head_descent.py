"""Descent of the energy of many heads whose symmetric weights may change in time, all heads computed at once."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import choice, number
from metastable.errors import InvalidInput
from metastable.flows.drift import Drift
from metastable.flows.flow import Flow
from metastable.flows.head_sums import head_sums
from metastable.flows.identity import describe_heads
from metastable.flows.plan import Plan
from metastable.weights import OrnsteinUhlenbeck
from metastable.weights.schedule import DIVIDES, ROUNDING
from metastable.weights.target import symmetric_heads

MOBILITIES = ("head", "harmonic")


class HeadDescent(Flow):
    """x_i' = -(1/H) sum_h P_{x_i} w_i^h,   w_i^h = sum_j A_ij^h D_h x_j,   A^h the softmax of <x_i, D_h x_j>.

    heads: symmetric matrices D (H, d, d), beta in them, or the `OrnsteinUhlenbeck` process that they follow.
    Source: [arXiv:2605.18870], whose sign is that of descent: with D = I tokens repel each other.

    With Z_i^h = sum_j m_j e^{<x_i, D_h x_j>} the gradient of E = (1/2H) sum_h sum_i m_i Z_i^h is a_i = (1/H) sum_h
    Z_i^h P w_i^h. mobility "head" is the flow above, in which every head has its own 1/Z_i^h: a gradient flow for
    one head only. "harmonic" is x_i' = -b_i a_i with the harmonic mean b_i = H/sum_h Z_i^h, a gradient flow for any
    H. It is the `MultiHead` of the schedules `Schedule.ornstein_uhlenbeck` gives, with combine="mean".

    >>> flow = HeadDescent(torch.eye(2), mobility="harmonic")
    >>> flow.velocity(0.0, torch.eye(2), torch.tensor([0.5, 0.5]))
    tensor([[ 0.0000, -0.2689],
            [-0.2689,  0.0000]])
    """

    def __init__(self, heads: Any, mobility: str = "head") -> None:
        self.heads = heads if isinstance(heads, OrnsteinUhlenbeck) else symmetric_heads(heads, "heads")
        self.mobility = choice(mobility, "mobility", MOBILITIES)

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return self.heads.d if isinstance(self.heads, OrnsteinUhlenbeck) else int(self.heads.shape[1])

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """Times at which the weights, linear in between, change their slope."""
        return tuple(self.heads.times[1:-1].tolist()) if isinstance(self.heads, OrnsteinUhlenbeck) else ()

    def for_run(self, plan: Plan) -> Flow:
        """Itself; refuses a run that outlasts the weights, or a step that the grid of the weights cuts short."""
        super().for_run(plan)
        process = self.heads
        if not isinstance(process, OrnsteinUhlenbeck):
            return self
        if plan.stop > process.t * (1 + ROUNDING):
            raise InvalidInput(
                f"these weights end at t = {process.t:g}, but the run goes on to t = {plan.stop:g}; give them "
                "a longer t"
            )
        parts = 1.0 if plan.step is None else process.step / plan.step
        if abs(parts - round(parts)) > DIVIDES * max(1.0, parts) or parts < 0.5:
            raise InvalidInput(
                f"step = {plan.step:g} does not divide the step {process.step:g} of the weights; give weights with "
                "coarser steps, or a whole part of theirs"
            )
        return self

    def heads_at(self, t: float, like: Tensor | None = None) -> Float[Tensor, "h d d"]:
        """D(t), in the precision and on the device of the tokens `like`."""
        time = number(t, "t")
        heads = self.heads(time) if isinstance(self.heads, OrnsteinUhlenbeck) else self.heads
        return heads if like is None else heads.to(like)

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """The mean of the heads before the projection, each with its share of the mobility."""
        heads = self.heads_at(t, points)
        vector = self.combined(*head_sums(points, mass, heads))
        if self.mobility == "harmonic":
            return Drift(vector)

        def rate() -> float:
            norm = torch.linalg.matrix_norm(heads, ord=2)
            return float((norm * (2 + norm)).mean())

        return Drift(vector, rate)

    def combined(self, log_z: Float[Tensor, "*m h n"], w: Float[Tensor, "*m h n d"]) -> Float[Tensor, "*m n d"]:
        """The field before the projection from the sums of all heads."""
        if self.mobility == "harmonic":
            return -(torch.softmax(log_z, dim=-2).unsqueeze(-1) * w).sum(-3)
        return -w.mean(-3)

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """E(x; D(t)) = (1/2H) sum_h sum_ij m_i m_j e^{<x_i, D_h x_j>}, which falls while D rests (see
        `mobility`)."""
        points, mass = self.tokens(points, mass)
        log_z, _ = head_sums(points, mass, self.heads_at(t, points))
        found = float((torch.exp(log_z) @ mass).mean()) / 2
        if found == torch.inf:
            raise InvalidInput(f"the energy overflows: the largest log Z is {float(log_z.max()):.6g}")
        return found

    def describe(self) -> dict[str, Any]:
        """Name, mobility and the weights or the process that they follow."""
        return {"flow": "HeadDescent", "mobility": self.mobility, "heads": describe_heads(self.heads)}

    def __repr__(self) -> str:
        heads = self.heads if isinstance(self.heads, OrnsteinUhlenbeck) else f"{len(self.heads)} heads, d={self.d}"
        return f"HeadDescent({heads}, mobility={self.mobility!r})"
