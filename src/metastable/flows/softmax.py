"""Self-attention on the sphere: x' = P_x V m_beta(x), the flow of a transformer with normalised layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metastable.arguments import number
from metastable.attention.gpu import attend_in_precision
from metastable.attention.kernel import Attended
from metastable.attention.operands import Operands
from metastable.errors import InvalidInput, NoEnergy
from metastable.flows.attending import AttendingFlow, Tolerance, scheduled
from metastable.flows.drift import Drift, Velocities
from metastable.flows.energy import interaction_energy, require_gradient_structure
from metastable.flows.launched import promised
from metastable.flows.pullback import HeadCotangent, Pullback
from metastable.measure import as_tensor
from metastable.rowwise import mean_spread, project_applied
from metastable.weights import AttentionWeights, Schedule


class SelfAttention(AttendingFlow):
    """x_i' = P V m_i,   m_i = sum_j m_j e^{l_ij} x_j / sum_j m_j e^{l_ij},   l_ij = beta <x_i, B x_j> + <g, x_j>.

    weights: `AttentionWeights`, or a `Schedule` of them. beta >= 0. field: the optional vector g (d,), which a
    trained layer has through its biases. kernel and rtol go to `attend`: a kernel's name, and the relative error
    allowed to it: None for all digits, "auto" for a share of the tolerance of a run (see `AttendingFlow`).
    Self-attention (j = i) is included. Source: [arXiv:2312.10794].

    >>> flow = SelfAttention(AttentionWeights(V=torch.eye(2), B=torch.eye(2)), beta=1.0)
    >>> flow.velocity(0.0, torch.tensor([[1.0, 0.0], [0.0, 1.0]]).double(), torch.tensor([0.5, 0.5]).double())
    tensor([[0.0000, 0.2689],
            [0.2689, 0.0000]], dtype=torch.float64)
    """

    def __init__(
        self,
        weights: AttentionWeights | Schedule,
        beta: float | Any,
        *,
        field: Any = None,
        kernel: str = "auto",
        rtol: Tolerance = "auto",
    ) -> None:
        super().__init__(weights, beta, kernel, rtol)
        self.field: Tensor | None = None
        if field is not None:
            self.field = as_tensor(field, "field")
            if self.field.shape != (self.d,):
                raise InvalidInput(f"field must have shape ({self.d},), got {tuple(self.field.shape)}")
            if not bool(torch.isfinite(self.field).all()):
                raise InvalidInput("field must be finite, got a NaN or infinity")

    def attention(
        self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]
    ) -> tuple[Attended, AttentionWeights]:
        """Attention of every token over all tokens, and the weights at that time in the tokens' precision."""
        w = self.weights_at(t, points)
        queries, keys, beta = w.queries(points), w.keys(points), self.beta
        if self.field is not None:
            # The field is one more coordinate of the score: <[beta q, 1], [k, <g, y>]>.
            lift = (points @ self.field.to(points))[:, None]
            queries = torch.cat([beta * queries, torch.ones_like(lift)], dim=1)
            keys, beta = torch.cat([keys, lift], dim=1), 1.0
        return self._attend(queries, keys, w.values(points), mass, beta), w

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """V m_i before the projection."""
        return self._drift(t, *self.attention(t, points, mass), mass)

    def _drift(self, t: float, attended: Attended, w: AttentionWeights, mass: Float[Tensor, "n"]) -> Drift:
        return Drift(attended.mean, lambda: self.rate(t, attended.mean, mass), w.after_average)

    def pullback(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Pullback:
        """V m_i and the transpose of its derivative."""
        kind = type(self)
        own = kind.attention is not SelfAttention.attention or kind.drift is not SelfAttention.drift
        if self._foreign or own:
            return super().pullback(t, points, mass)
        return self._pullback_of(t, points, mass, *self.attention(t, points, mass))

    def _pullback_of(
        self,
        t: float,
        points: Float[Tensor, "n d"],
        mass: Float[Tensor, "n"],
        attended: Attended,
        weights: AttentionWeights,
    ) -> Pullback:
        """The same from what `attention` found."""
        field = None if self.field is None else self.field.to(points)

        def back(cotangent: Tensor) -> tuple[Tensor, tuple[HeadCotangent, ...]]:
            tokens, head = self._over_pairs(points, mass, weights, attended, field=field).back(cotangent)
            return tokens, (head,)

        return Pullback(self._drift(t, attended, weights, mass), back, (self,), attended=attended)

    def evaluate_many(
        self,
        t: Float[Tensor, "b"],
        points: Float[Tensor, "b n d"],
        mass: Float[Tensor, "b n"],
        which: Int[Tensor, "b"],
    ) -> Velocities:
        """All systems at once, where they have one field-free set of weights that does not change in time."""
        if not self.plain:
            return super().evaluate_many(t, points, mass, which)
        w, beta = self.weights_at(0.0, points), self._betas(which, points)
        rows = points.reshape(-1, points.shape[-1])
        queries, keys, values = (part(rows).view(*points.shape[:2], -1) for part in (w.queries, w.keys, w.values))
        mean, _ = self._attend_many(queries, keys, values, mass, beta)
        rates = torch.full_like(beta, 2 * w.V_norm)
        if w.output is None and self.spherical:
            spread = (mass * (1 - mean.square().sum(2)).clamp(min=0)).sum(1)
            rates = w.V_norm * (2 + beta * w.B_norm * spread)
        drift = Drift(mean.reshape(len(rows), -1), None, w.after_average)
        return Velocities(self._projected(rows, drift).view_as(points), rates.double())

    @property
    def plain(self) -> bool:
        """Whether attention is that of this class, with weights that stay the same and no field."""
        own = not self._foreign and type(self).attention is SelfAttention.attention
        return own and self.field is None and not scheduled(self)

    def launched(
        self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]
    ) -> Callable[[Float[Tensor, "n d"]], Float[Tensor, "n d"]] | None:
        """By a kernel over all pairs, where the weights stay the same and bound the scores well."""
        if not (self.plain and points.is_cuda) or isinstance(self.beta, Tensor):
            return None
        w, beta = self.weights_at(0.0, points), self.beta
        operands = Operands.checked_before(w.queries(points), w.keys(points), w.values(points), mass, beta)
        kernel = self._chosen(operands)
        promise = promised(kernel, operands, w, self.rounding)
        if promise is None:
            return None

        def field(x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
            now = Operands.checked_before(w.queries(x), w.keys(x), w.values(x), mass, beta)
            mean, _ = attend_in_precision(now, kernel.precision or torch.float64, promise)
            return project_applied(x, mean, w.after_average)

        return field

    def rate(self, t: float, mean: Tensor, mass: Tensor) -> float:
        """|V| (2 + beta |B| E[1 - |m|^2]): the field's Lipschitz constant on the mass average.

        The derivative of m with respect to the query is beta Cov(y), and for keys on the sphere the trace of
        that covariance is 1 - |m|^2, which attention gives for free.
        """
        w = self.weights_at(t)
        if w.output is not None or not self.spherical:
            return 2 * w.V_norm
        return w.V_norm * (2 + self.beta * w.B_norm * mean_spread(mean, mass))

    def energy(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"], t: float = 0.0) -> float:
        """E = (1/2 beta) sum m_i m_j e^{beta <x_i, B x_j>} when B is symmetric and V = c B.

        dE/dt = c sum_i m_i Z_i |x_i'|^2 / c^2, so E increases for c > 0 and decreases for c < 0.
        """
        points, mass = self.tokens(points, mass)
        w = self.weights_at(number(t, "t"))
        require_gradient_structure(w)
        if self.field is not None:
            raise NoEnergy("self-attention with a field has no interaction energy")
        return interaction_energy(points, mass, w, self.beta)

    def describe(self) -> dict[str, Any]:
        """Name, weights, beta, field and kernel."""
        described = super().describe()
        if self.field is not None:
            described["field"] = self.field.tolist()
        return described
