"""What a call of attention is given, read and checked once: tokens, masses, inverse temperature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.arguments import number, shown
from metastable.attention.lengths import all_finite, finite_lengths, mass_range
from metastable.attention.operands import Masses, Operands, same_tensor
from metastable.errors import InvalidInput
from metastable.measure import as_tensor
from metastable.rowwise import dense

_NO_MASS = "mass must be finite, >= 0 and positive in total"


def read_tokens(queries: Any, keys: Any, values: Any, *, batched: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (n_q, d), keys (n_k, d), values (n_k, d_v), or (b, ...) of each, in one precision.

    None for the values means the keys, and is returned as such. Whether they are finite is not looked at.
    """
    q, k = as_floating(queries, "queries"), as_floating(keys, "keys")
    v = k if values is None else as_floating(values, "values")
    _require_shapes(q, k, v, batched)
    if not q.device == k.device == v.device:
        raise InvalidInput(
            f"queries, keys and values must be on one device, got {q.device}, {k.device} and {v.device}"
        )
    if q.dtype == k.dtype == v.dtype:
        return q, k, v
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    same = v is k
    q, k = q.to(dtype), k.to(dtype)
    return q, k, k if same else v.to(dtype)


def read_operands(queries: Any, keys: Any, values: Any, mass: Any, beta: float) -> Operands:
    """Finite tokens in one precision and the masses, in theirs, of the keys that have one; beta was read before."""
    q, k, v = read_tokens(queries, keys, values)
    operands = Operands.checked_before(q, k, v, read_mass(mass, k), beta)
    of_keys = finite_lengths(k)
    of_queries = of_keys if same_tensor(q, k) else finite_lengths(q)
    if of_keys is None or of_queries is None or (v is not k and not all_finite(v)):
        raise InvalidInput("queries, keys and values must be finite, got a NaN or infinity")
    # Facts that are found when first asked for, and these are known.
    if mass is None:
        each = float(operands.mass[0])
        operands.__dict__.update(masses=Masses(each, each, each * len(k)), _without_unseen=None)
    elif operands.seen is not operands:
        return operands.seen
    operands.__dict__.update(squared_queries=of_queries, squared_keys=of_keys)
    return operands


def _require_shapes(q: Tensor, k: Tensor, v: Tensor, batched: bool) -> None:
    if (
        q.ndim == k.ndim == v.ndim == 2 + batched
        and q.shape[-1] == k.shape[-1]
        and k.shape[:-1] == v.shape[:-1]
        and not (batched and len(q) != len(k))
        and k.numel()
        and v.numel()
    ):
        return
    given = f"got shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
    if not q.ndim == k.ndim == v.ndim == 2 + batched:
        raise InvalidInput(
            f"queries, keys and values must be {'batches (b, n, d)' if batched else 'matrices'}, {given}"
        )
    if q.shape[-1] != k.shape[-1]:
        raise InvalidInput(f"queries and keys must have one dimension, {given}")
    if k.shape[:-1] != v.shape[:-1] or (batched and len(q) != len(k)):
        raise InvalidInput(f"queries, keys and values do not match: {given}")
    raise InvalidInput(f"attention needs at least one key of one dimension, {given}")


def read_mass(mass: Any, keys: Tensor) -> Tensor:
    """Masses (n_k,), or (b, n_k), of the keys in their own precision, checked; None means 1/n_k each."""
    shape = tuple(keys.shape[:-1])
    if mass is None:
        return torch.full(shape, 1.0 / shape[-1], dtype=keys.dtype, device=keys.device)
    m = as_floating(mass, "mass").to(device=keys.device)
    if m.shape != shape:
        raise InvalidInput(f"mass must have shape {shape} to match the keys, got {tuple(m.shape)}")
    if m.is_cpu and m.ndim == 1:
        least, largest, finite = mass_range(m.numpy())
        if not (finite and least >= 0 and largest > 0):
            raise InvalidInput(_NO_MASS)
        return m
    recorded = len(shape) > 1 and not m.is_cpu
    if not recorded and (not all_finite(m) or not bool(m.min() >= 0) or not bool((m.amax(dim=-1) > 0).all())):
        raise InvalidInput(_NO_MASS)
    return m


def read_beta(beta: Any) -> float:
    """An inverse temperature: finite and >= 0."""
    if type(beta) is float and 0.0 <= beta < math.inf:  # as nearly always
        return beta
    try:
        return number(beta, "beta", least=0)
    except InvalidInput:
        raise InvalidInput(f"beta must be finite and >= 0, got {shown(beta)}") from None


def as_floating(values: Any, name: str) -> Tensor:
    """A tensor in the precision it has (float32 stays float32), anything else in float64.

    No copy where none is needed: a call keeps nothing of its inputs, and the fresh pages of a copy cost as much as
    the attention of a million tokens on the circle.
    """
    if isinstance(values, np.ndarray) and values.dtype == np.float64 and values.flags.writeable:
        return torch.from_numpy(values) if min(values.strides, default=0) >= 0 else torch.from_numpy(values.copy())
    if isinstance(values, Tensor):
        if not dense(values):
            raise InvalidInput(
                f"{name} must be a dense tensor with numbers, got one that is nested, sparse or meta"
            )
        if values.dtype in (torch.float32, torch.float64):
            return values.detach().resolve_neg()
    return as_tensor(values, name)
