"""How ordered the tokens are: mean direction, effective rank, distance to a subspace, pairwise overlaps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import integer
from metastable.errors import InvalidInput
from metastable.measure import Ensemble, Measure, as_measure, as_tensor

PAIRS = 4_000_000
"""Pairs of tokens that are looked at together: a block of 32 MB of overlaps in float64."""

MOST_BINS = 1 << 24
"""Most bins of a histogram: finer ones are empty for any number of pairs that can be looked at."""


@overload
def order_parameter(rho: Ensemble) -> Float[Tensor, "b"]: ...


@overload
def order_parameter(rho: Any) -> float: ...


def order_parameter(rho: Any) -> float | Float[Tensor, "b"]:
    """R = |sum_i m_i x_i|: 0 for a balanced cloud, 1 when all tokens coincide; of an `Ensemble`, (b,)."""
    if isinstance(rho, Ensemble):
        return torch.linalg.vector_norm((rho.mass[:, :, None] * rho.points).sum(1), dim=1).double()
    measure = as_measure(rho)
    return float(torch.linalg.vector_norm(measure.mass @ measure.points))


@overload
def effective_rank(rho: Ensemble) -> Float[Tensor, "b"]: ...


@overload
def effective_rank(rho: Any) -> float: ...


def effective_rank(rho: Any) -> float | Float[Tensor, "b"]:
    """exp of the entropy of the normalised eigenvalues of sum_i m_i x_i x_i^T: between 1 and d.

    Of an `Ensemble`, that of every system.

    >>> round(effective_rank([[1.0, 0.0], [0.0, 1.0]]), 12)
    2.0
    """
    if isinstance(rho, Ensemble):
        return of_systems(effective_rank, rho)
    measure = as_measure(rho)
    singular = torch.linalg.svdvals(measure.points * measure.mass.sqrt()[:, None])
    share = singular.square() / singular.square().sum()
    share = share[share > 0]
    return float(torch.exp(-(share * torch.log(share)).sum()))


@overload
def distance_to_subspace(rho: Ensemble, basis: Any) -> Float[Tensor, "b"]: ...


@overload
def distance_to_subspace(rho: Any, basis: Any) -> float: ...


def distance_to_subspace(rho: Any, basis: Any) -> float | Float[Tensor, "b"]:
    """D_E = sqrt(sum_i m_i 2 (1 - |P_E x_i|)): chordal W2 to the nearest law on E, a lower bound to any other.

    basis: (d, k), any k independent columns that span E. Of an `Ensemble`, that of every system.

    >>> distance_to_subspace([[1.0, 0.0], [0.0, 1.0]], [[1.0], [0.0]])
    1.0
    """
    if isinstance(rho, Ensemble):
        return squared_distance_to_subspace(rho, basis).sqrt()
    return math.sqrt(squared_distance_to_subspace(rho, basis))


@overload
def squared_distance_to_subspace(rho: Ensemble, basis: Any) -> Float[Tensor, "b"]: ...


@overload
def squared_distance_to_subspace(rho: Any, basis: Any) -> float: ...


def squared_distance_to_subspace(rho: Any, basis: Any) -> float | Float[Tensor, "b"]:
    """D_E^2 = sum_i m_i 2 (1 - |P_E x_i|): the mean over tokens of the squared distance to E.

    Of an `Ensemble`, that of every system.

    >>> squared_distance_to_subspace([[1.0, 0.0], [0.0, 1.0]], [[1.0], [0.0]])
    1.0
    """
    if isinstance(rho, Ensemble):
        return of_systems(lambda one: squared_distance_to_subspace(one, basis), rho)
    measure = as_measure(rho)
    span = as_tensor(basis, "basis", measure.points.dtype).to(measure.points.device)
    if span.ndim == 1:
        span = span[:, None]
    if span.ndim != 2 or span.shape[0] != measure.d or not 1 <= span.shape[1] <= measure.d:
        raise InvalidInput(f"basis must have shape ({measure.d}, k) with 1 <= k <= d, got {tuple(span.shape)}")
    if not bool(torch.isfinite(span).all()):
        raise InvalidInput("basis must be finite, got a NaN or infinity")
    # Scaled first: what counts is the span, and squares of its entries may overflow or vanish.
    orthonormal, triangle = torch.linalg.qr(span / span.abs().amax(0).clamp(min=torch.finfo(span.dtype).tiny))
    if float(triangle.diagonal().abs().min()) <= 1e-12 * float(triangle.abs().max()):
        raise InvalidInput("the columns of basis must be linearly independent, and they are not")
    part = torch.linalg.vector_norm(measure.points @ orthonormal, dim=1)
    rest = torch.linalg.vector_norm(measure.points - measure.points @ orthonormal @ orthonormal.T, dim=1)
    # 1 - |P_E x| = |x - P_E x|^2/(1 + |P_E x|) keeps its digits when the tokens are close to E.
    return float(measure.mass @ (2 * rest.square() / (1 + part)))


def overlap_histogram(rho: Any, bins: int = 100) -> tuple[Float[Tensor, "b"], Float[Tensor, "b+1"]]:
    """Law of the overlap <x_i, x_j> of two different tokens: (probability per bin, edges on [-1, 1]).

    Pairs i != j are weighted with m_i m_j. Time O(n^2), memory O(n).
    """
    measure = as_measure(rho)
    bins = integer(bins, "bins", least=1, most=MOST_BINS)
    if measure.n < 2:
        raise InvalidInput("overlaps need at least two tokens, got one")
    points, mass = measure.points, measure.mass
    count = torch.zeros(bins, dtype=torch.float64)
    block = max(1, PAIRS // measure.n)
    for first in range(0, measure.n, block):
        overlap = (points[first : first + block] @ points.T).clamp(-1, 1)
        index = ((overlap + 1) * (bins / 2)).long().clamp(max=bins - 1)
        weight = mass[first : first + block, None] * mass
        weight[torch.arange(len(weight)), torch.arange(first, first + len(weight))] = 0
        counted = torch.bincount(index.reshape(-1), weights=weight.reshape(-1).double(), minlength=bins)
        count += counted.cpu()
    if not bool(count.sum() > 0):
        raise InvalidInput("overlaps need two tokens that carry mass, got one")
    return count / count.sum(), torch.linspace(-1, 1, bins + 1, dtype=torch.float64)


def of_systems(observable: Callable[[Measure], float], many: Ensemble) -> Float[Tensor, "b"]:
    """What an observable is in every system, one after the other."""
    return torch.tensor([observable(rho) for rho in many], dtype=torch.float64)
