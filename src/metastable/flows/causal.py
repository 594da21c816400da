"""Causal attention: tokens have an order, and each attends to those before it, more to the recent ones (ALiBi)."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import flag, instance, number
from metastable.attention.direct import attend_causal
from metastable.attention.kernel import Attended
from metastable.errors import InvalidInput
from metastable.flows.attending import AttendingFlow
from metastable.flows.drift import Drift
from metastable.flows.euclidean import EuclideanAttention
from metastable.flows.flow import Flow
from metastable.flows.multihead import MultiHead
from metastable.flows.plan import Plan
from metastable.flows.pullback import Order, Pullback
from metastable.flows.softmax import SelfAttention
from metastable.flows.unnormalized import UnnormalizedAttention

LARGEST_ALIBI = 1e6
"""Largest slope over the context: it is added to scores, which are rounded to alibi times 1e-16."""


class Causal(Flow):
    """x_j' = P V sum_{k<=j} w_jk x_k,   w_jk = m_k e^{l_jk - (alibi/n)(j-k)} / sum of them over k (softmax), or
    x_j' = P V sum_{k<=j} w_jk e^{l_jk} x_k,   w_jk = m_k e^{-(alibi/n)(j-k)} / sum of them over k (unnormalised).

    flow: `SelfAttention`, `UnnormalizedAttention`, `EuclideanAttention` or a `MultiHead` of such, with their scores
    l_jk = beta <x_j, B x_k>; token j is row j of the points. Heads of different slopes are a `MultiHead` of causal
    flows. alibi >= 0: how much less the first token counts than the last, e^{-alibi}, whatever n is. include_self:
    whether k = j; without it token 0 sees nothing and rests.

    All n^2/2 pairs with all digits, in O(n) memory; the kernel and tolerance of `flow` are not used. On the circle
    `Causal(UnnormalizedAttention(AttentionWeights(V=beta * I, B=I), beta), alibi=lambda, include_self=False)` is
    theta_j' = -sum_{k<j} w_jk beta sin(theta_j - theta_k) e^{beta cos(theta_j - theta_k)} of [arXiv:2605.09213]:
    the factor beta stands in V.

    >>> import metastable as ms
    >>> flow = Causal(SelfAttention(ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2)), beta=1.0))
    >>> flow.velocity(0.0, torch.eye(2), torch.tensor([0.5, 0.5]))  # the first token sees only itself
    tensor([[0.0000, 0.0000],
            [0.2689, 0.0000]])
    """

    caches: ClassVar[tuple[str, ...]] = ("_masked",)

    def __init__(self, flow: Flow, alibi: float = 0.0, include_self: bool = True) -> None:
        self.flow = instance(flow, "flow", Flow, "a Flow such as SelfAttention")
        self.alibi = number(alibi, "alibi", least=0.0, most=LARGEST_ALIBI)
        self.include_self = flag(include_self, "include_self")
        self._masked = _masked(flow, self.alibi, self.include_self)
        self.spherical, self.smooth, self.residual = flow.spherical, flow.smooth, flow.residual

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return self.flow.d

    @property
    def breakpoints(self) -> tuple[float, ...]:
        """Those of the flow."""
        return self.flow.breakpoints

    @property
    def time_scale(self) -> float:
        """That of the flow."""
        return self._masked.time_scale

    @property
    def systems(self) -> int | None:
        """Those of the flow."""
        return self.flow.systems

    def of_system(self, index: int) -> Causal:
        """The causal flow of one of many systems."""
        super().of_system(index)
        return self if self.systems is None else Causal(self.flow.of_system(index), self.alibi, self.include_self)

    def for_run(self, plan: Plan) -> Causal:
        """With the flow as the run takes it."""
        super().for_run(plan)
        if self._foreign:
            return self
        prepared = copy.copy(self)
        prepared._masked = self._masked.for_run(plan)
        return prepared

    def record(self) -> dict[str, Any]:
        """The kernel of the run."""
        return self._masked.record()

    def recall(self, record: dict[str, Any]) -> None:
        """Take over the record of the run so far."""
        super().recall(record)
        self._masked.recall(record)

    def drift(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Drift:
        """That of the flow, with the tokens that come later left out."""
        return self._masked.ambient_drift(t, points, mass)

    def pullback(self, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Pullback:
        """That of the flow, with the tokens that come later left out."""
        return super().pullback(t, points, mass) if self._foreign else self._masked.pullback(t, points, mass)

    def describe(self) -> dict[str, Any]:
        """The flow, the slope and whether tokens see themselves."""
        described = {"flow": "Causal", "of": self.flow.describe()}
        return described | {"alibi": self.alibi, "include_self": self.include_self}

    def __repr__(self) -> str:
        return f"Causal({self.flow!r}, alibi={self.alibi:g}, include_self={self.include_self})"


class _Ordered(AttendingFlow):
    """An attention flow whose tokens attend to those before them."""

    alibi: float
    include_self: bool

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, mass: Tensor, beta: float) -> Attended:
        """Causal attention; the partition is that of the scores over that of the masses which a token sees."""
        order = self._order(mass)
        mean, log_partition = attend_causal(queries, keys, values, order.log_mass, beta, self.include_self)
        seen = order.log_seen
        assert seen is not None
        share = torch.where(seen > -torch.inf, log_partition - seen, -torch.inf)
        self._note("causal", None)
        return Attended(mean, share.to(mean.dtype), "causal")

    def _order(self, mass: Tensor) -> Order:
        """Masses that fall towards the past, and for every token how much of them it sees."""
        n = len(mass)
        place = torch.arange(n, dtype=torch.float64, device=mass.device)
        log_mass = torch.log(mass.double()) + self.alibi / n * (place - (n - 1))
        seen = torch.logcumsumexp(log_mass, 0)
        if not self.include_self:
            seen = torch.cat([seen.new_full((1,), -torch.inf), seen[:-1]])
        return Order(log_mass, seen, int(self.include_self))


class _OrderedSelfAttention(_Ordered, SelfAttention):
    pass


class _OrderedUnnormalized(_Ordered, UnnormalizedAttention):
    pass


class _OrderedEuclidean(_Ordered, EuclideanAttention):
    pass


_ORDERED: dict[type[Flow], type[_Ordered]] = {
    SelfAttention: _OrderedSelfAttention,
    UnnormalizedAttention: _OrderedUnnormalized,
    EuclideanAttention: _OrderedEuclidean,
}


def _masked(flow: Flow, alibi: float, include_self: bool) -> Flow:
    """The flow with causal attention, with all else that it has."""
    if type(flow) is MultiHead:
        heads = [_masked(head, alibi, include_self) for head in flow.heads]
        return MultiHead(heads, flow.combine, residual=flow.residual)
    kind = _ORDERED.get(type(flow))
    if kind is None:
        raise InvalidInput(
            "Causal takes SelfAttention, UnnormalizedAttention, EuclideanAttention or a MultiHead of them, got "
            f"{type(flow).__name__}"
        )
    ordered = object.__new__(kind)
    ordered.__dict__.update(flow.__dict__, alibi=alibi, include_self=include_self)
    return ordered
