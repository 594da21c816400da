"""`Pullback`: the field at some tokens together with the transpose of its derivative, for the adjoint of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.adjoint import attention_adjoint
from metastable.attention.backwards import Backwards
from metastable.attention.kernel import Attended
from metastable.errors import InvalidInput, MetastableError
from metastable.flows.drift import Drift
from metastable.rowwise import apply, inner
from metastable.weights import AttentionWeights


@dataclass(frozen=True, eq=False)
class HeadCotangent:
    """Derivatives of a number with respect to the weights of one head at one time: V (d, d), B (d, d) and beta."""

    V: Float[Tensor, "d d"]
    B: Float[Tensor, "d d"]
    beta: float


Back = Callable[[Tensor], tuple[Tensor, tuple[HeadCotangent, ...]]]
"""Cotangents of F (n, d) -> those of the tokens (n, d) and of the weights of every head."""


@dataclass(frozen=True, eq=False)
class Pullback:
    """F(t, x) as `Flow.drift` gives it, and w -> (dF/dx)^T w, (dF/dweights)^T w."""

    drift: Drift
    back: Back
    heads: tuple[Any, ...] = ()
    """The flows whose weights `back` differentiates, in its order; none where they are not known."""
    sure: bool = True
    """Whether there is a transpose for certain; else torch has to find it, and may not."""
    attended: Attended | None = None
    """What attention found, where F is that of one head alone."""


@dataclass(frozen=True, eq=False)
class Order:
    """log m_j as a mask leaves it, how much of the mass every token sees (None: all), and which keys."""

    log_mass: Float[Tensor, "n"]
    log_seen: Float[Tensor, "n"] | None = None
    ahead: int | None = None
    """Token i sees the keys below i + ahead; None: all."""


@dataclass(frozen=True, eq=False)
class OverPairs:
    """What one attention of all tokens to all was computed of, as its transpose needs it.

    The attended vectors are a_i = sum_j e^{l_ij} x_j/Z_i with l_ij = <beta B^T x_i + g, x_j> + log m_j, for
    unnormalised attention times Z_i e^{-s} over the masses that token i sees.
    """

    points: Float[Tensor, "n d"]
    weights: AttentionWeights
    beta: float
    field: Float[Tensor, "d"] | None
    attended: Attended
    """The means, and log Z_i less the logarithm of the masses that token i sees."""
    order: Order
    log_scale: float | None
    """s of unnormalised attention, None for softmax attention."""
    rtol: float | None = None
    """What the transpose may err by, of tokens on the sphere (see `attention_adjoint`); None: all digits."""

    def back(self, cotangent: Float[Tensor, "n d"]) -> tuple[Tensor, HeadCotangent]:
        """The cotangents of the tokens and of the weights from those of F = V attended."""
        x, w, mean, share = self.points, self.weights, self.attended.mean, self.attended.log_partition
        inward, queries = apply(cotangent, w.V), apply(x, self.beta * w.B)
        queries = queries if self.field is None else queries + self.field
        if self.log_scale is None:
            shift = inner(inward, mean)
        else:
            factor = torch.exp(share - self.log_scale)[:, None]
            inward, mean, shift = factor * inward, factor * mean, torch.zeros_like(share)
        seen, order = self.order.log_seen, self.order
        log_z = share if seen is None else torch.where(seen > -torch.inf, share + seen, share)
        given = Backwards(queries, x, order.log_mass, log_z, inward, shift, self.attended.mean)
        by_query, by_key = attention_adjoint(given, order.ahead, rtol=self.rtol)
        tokens = by_key + apply(by_query, self.beta * w.B.T)
        of_scores = x.T @ by_query
        beta = float((w.B * of_scores).sum())
        return tokens, HeadCotangent(cotangent.T @ mean, self.beta * of_scores, beta)


def by_autograd(flow: Any, t: float, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> Pullback:
    """The pullback of any flow whose drift torch can differentiate with respect to the tokens.

    The drift is computed again for the transpose, so that nothing of it is kept in between.
    """

    def back(cotangent: Tensor) -> tuple[Tensor, tuple[HeadCotangent, ...]]:
        with torch.enable_grad():
            x = points.detach().clone().requires_grad_()
            try:
                drift = flow.drift(t, x, mass)
                vector = drift.vector if isinstance(drift, Drift) else drift
                (found,) = torch.autograd.grad(vector, x, cotangent)
            except MetastableError:
                raise
            except RuntimeError as error:  # what is compiled, constant or changed in place, torch cannot follow
                raise _unknown(flow) from error
        return found, ()

    with torch.no_grad():
        return Pullback(flow.ambient_drift(t, points, mass), back, sure=False)


def _unknown(flow: Any) -> InvalidInput:
    return InvalidInput(
        f"the derivative of {type(flow).__name__} is not known, and torch cannot find it: its drift is not made of "
        "torch operations on the points"
    )
