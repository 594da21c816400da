"""`attend`: the mean of the values under softmax attention, and the log-partition; validation and dispatch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.select import KERNELS, select
from metastable.errors import InvalidInput
from metastable.measure import as_tensor


@dataclass(frozen=True, eq=False)
class Attended:
    """Result of `attend`: the attended mean (n_q, d_v), log-partition (n_q,), and how it was computed."""

    mean: Float[Tensor, "q v"]
    log_partition: Float[Tensor, "q"]
    kernel: str
    error: float | None = None
    """Estimate of the largest relative error of a row when the kernel approximates; None for exact kernels."""


def attend(
    queries: Any,
    keys: Any,
    mass: Any = None,
    beta: float = 1.0,
    *,
    values: Any = None,
    kernel: str = "auto",
    rtol: float | None = None,
) -> Attended:
    """m_i = sum_j m_j e^{beta <q_i, k_j>} v_j / Z_i,   log Z_i = log sum_j m_j e^{beta <q_i, k_j>}.

    queries (n_q, d), keys (n_k, d); mass (n_k,) or None for 1/n_k each (so that Z is an expectation);
    values (n_k, d_v) or None for the keys themselves. `kernel` is "auto" or one of the names in `KERNELS`.
    `rtol` allows an approximation whose stated relative error is below it; None asks for all digits.

    >>> attend([[1.0, 0.0]], [[1.0, 0.0], [-1.0, 0.0]], beta=2.0).mean[0, 0].item()  # tanh(2)
    0.964027580075...
    """
    q, k = as_floating(queries, "queries"), as_floating(keys, "keys")
    v = k if values is None else as_floating(values, "values")
    if q.ndim != 2 or k.ndim != 2 or v.ndim != 2:
        raise InvalidInput(
            "queries, keys and values must be matrices, got shapes "
            f"{tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
        )
    if q.shape[1] != k.shape[1]:
        raise InvalidInput(
            f"queries and keys must have one dimension, got shapes {tuple(q.shape)} and {tuple(k.shape)}"
        )
    if v.shape[0] != k.shape[0]:
        raise InvalidInput(f"there are {k.shape[0]} keys but {v.shape[0]} values")
    if k.shape[0] == 0:
        raise InvalidInput("attention needs at least one key, got none")
    m = key_mass(mass, k)
    check_beta(beta)
    if not all(bool(torch.isfinite(x).all()) for x in (q, k, v)):
        raise InvalidInput("queries, keys and values must be finite, got a NaN or infinity")
    return attend_unchecked(q, k, v, m, float(beta), kernel=kernel, rtol=rtol)


def attend_unchecked(
    queries: Float[Tensor, "q d"],
    keys: Float[Tensor, "k d"],
    values: Float[Tensor, "k v"],
    mass: Float[Tensor, "k"],
    beta: float,
    *,
    kernel: str = "auto",
    rtol: float | None = None,
) -> Attended:
    """`attend` without its checks: for right-hand sides, whose inputs were validated when the run began."""
    name = select(queries, keys, values, beta, rtol) if kernel == "auto" else kernel
    if name not in KERNELS:
        raise InvalidInput(f"unknown kernel {name!r}; choose from auto, {', '.join(sorted(KERNELS))}")
    return Attended(*KERNELS[name](queries, keys, values, mass, beta), kernel=name)


def check_beta(beta: float) -> None:
    """Refuse an inverse temperature that is not finite and >= 0."""
    try:
        ok = math.isfinite(beta) and beta >= 0
    except TypeError:
        ok = False
    if not ok:
        raise InvalidInput(f"beta must be finite and >= 0, got {beta!r}")


def as_floating(values: Any, name: str) -> Tensor:
    """A tensor in the precision it has (float32 stays float32), anything else in float64."""
    keep = values.dtype if isinstance(values, Tensor) and values.dtype in (torch.float32, torch.float64) else None
    return as_tensor(values, name, keep)


def key_mass(mass: Any, keys: Tensor) -> Tensor:
    """Masses (n_k,) of the keys, validated; None means 1/n_k each."""
    n = keys.shape[0]
    if mass is None:
        return torch.full((n,), 1.0 / n, dtype=keys.dtype, device=keys.device)
    m = as_tensor(mass, "mass", keys.dtype).to(keys.device)
    if m.shape != (n,):
        raise InvalidInput(f"mass must have shape ({n},) to match the keys, got {tuple(m.shape)}")
    if not bool((torch.isfinite(m) & (m >= 0)).all()) or not bool((m > 0).any()):
        raise InvalidInput("mass must be finite, >= 0 and positive in total")
    return m
