"""Observables of attention itself: interaction energy and entropy, from `attend` and never from an n x n matrix."""

from __future__ import annotations

from typing import Any, overload

import torch
from jaxtyping import Float
from torch import Tensor

from metastable import flows
from metastable.arguments import flag, instance, number
from metastable.attention.attend import attend_unchecked
from metastable.attention.batch import read_betas
from metastable.errors import InvalidInput
from metastable.measure import Ensemble, as_measure
from metastable.weights import AttentionWeights


@overload
def interaction_energy(
    rho: Ensemble, weights: AttentionWeights, beta: float | Any, *, log: bool = ...
) -> Float[Tensor, "b"]: ...


@overload
def interaction_energy(rho: Any, weights: AttentionWeights, beta: float, *, log: bool = ...) -> float: ...


def interaction_energy(
    rho: Any, weights: AttentionWeights, beta: float | Any, *, log: bool = False
) -> float | Float[Tensor, "b"]:
    """E = (1/2 beta) sum_ij m_i m_j e^{beta <x_i, B x_j>} of a measure (or its logarithm).

    Of an `Ensemble`, that of every system; beta a number or one per system.
    """
    if isinstance(rho, Ensemble):
        betas = read_betas(beta, len(rho)).tolist()
        return torch.tensor(
            [interaction_energy(one, weights, b, log=log) for one, b in zip(rho, betas, strict=True)],
            dtype=torch.float64,
        )
    beta = number(beta, "beta", least=0)
    measure = as_measure(rho)
    _check_weights(measure.d, weights)
    log = flag(log, "log")
    return flows.interaction_energy(measure.points, measure.mass, weights, beta, log=log)


def attention_entropy(rho: Any, weights: AttentionWeights, beta: float) -> Float[Tensor, "n"]:
    """S_i = -sum_j A_ij log A_ij with A_ij = m_j e^{beta <x_i, B x_j>}/Z_i, for every token i.

    S_i = log Z_i - beta <q_i, sum_j A_ij k_j> - sum_j A_ij log m_j, so one attention gives all entropies; equal
    masses and uniform attention give log n.

    >>> identity = AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    >>> [round(s, 12) for s in attention_entropy([[1.0, 0.0], [0.0, 1.0]], identity, 0.0).tolist()]
    [0.69314718056, 0.69314718056]
    """
    beta = number(beta, "beta", least=0)
    measure = as_measure(rho)
    _check_weights(measure.d, weights)
    seen = measure.mass > 0
    points, mass = measure.points, measure.mass[seen]
    w = weights.to(device=points.device, dtype=points.dtype)
    queries, keys = w.queries(points), w.keys(points[seen])
    values = torch.cat([keys, torch.log(mass)[:, None]], dim=1)
    attended = attend_unchecked(queries, keys, values, mass, beta)
    score = beta * (queries * attended.mean[:, :-1]).sum(1)
    return attended.log_partition - score - attended.mean[:, -1]


def _check_weights(d: int, weights: AttentionWeights) -> None:
    instance(weights, "weights", AttentionWeights, "AttentionWeights")
    if d != weights.d:
        raise InvalidInput(f"the tokens have dimension {d} but the weights have dimension {weights.d}")
