"""What a call of attention is given, read and checked once: tokens, masses, inverse temperature."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.arguments import number, shown
from metastable.attention.lengths import all_finite
from metastable.errors import InvalidInput
from metastable.measure import as_tensor


def read_tokens(queries: Any, keys: Any, values: Any, *, batched: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Queries (n_q, d), keys (n_k, d), values (n_k, d_v), or (b, ...) of each, finite, in one precision.

    None for the values means the keys, and is returned as such. Whether tokens on a GPU are finite is not looked at
    in a batch, which may be recorded in a graph.
    """
    q, k = as_floating(queries, "queries"), as_floating(keys, "keys")
    v = k if values is None else as_floating(values, "values")
    given = f"got shapes {tuple(q.shape)}, {tuple(k.shape)}, {tuple(v.shape)}"
    if not q.ndim == k.ndim == v.ndim == 2 + batched:
        raise InvalidInput(
            f"queries, keys and values must be {'batches (b, n, d)' if batched else 'matrices'}, {given}"
        )
    if q.shape[-1] != k.shape[-1]:
        raise InvalidInput(f"queries and keys must have one dimension, {given}")
    if k.shape[:-1] != v.shape[:-1] or (batched and len(q) != len(k)):
        raise InvalidInput(f"queries, keys and values do not match: {given}")
    if 0 in k.shape or v.shape[-1] == 0:
        raise InvalidInput(f"attention needs at least one key of one dimension, {given}")
    if not q.device == k.device == v.device:
        raise InvalidInput(
            f"queries, keys and values must be on one device, got {q.device}, {k.device}, {v.device}"
        )
    dtype = torch.promote_types(torch.promote_types(q.dtype, k.dtype), v.dtype)
    same = v is k
    q, k = q.to(dtype), k.to(dtype)
    v = k if same else v.to(dtype)
    if (q.is_cpu or not batched) and not all(all_finite(x) for x in ((q, k) if same else (q, k, v))):
        raise InvalidInput("queries, keys and values must be finite, got a NaN or infinity")
    return q, k, v


def read_mass(mass: Any, keys: Tensor) -> Tensor:
    """Masses (n_k,), or (b, n_k), of the keys in their own precision, checked; None means 1/n_k each."""
    shape = tuple(keys.shape[:-1])
    if mass is None:
        return torch.full(shape, 1.0 / shape[-1], dtype=keys.dtype, device=keys.device)
    m = as_floating(mass, "mass").to(device=keys.device)
    if m.shape != shape:
        raise InvalidInput(f"mass must have shape {shape} to match the keys, got {tuple(m.shape)}")
    recorded = len(shape) > 1 and not m.is_cpu
    if not recorded and (not all_finite(m) or not bool(m.min() >= 0) or not bool((m.amax(dim=-1) > 0).all())):
        raise InvalidInput("mass must be finite, >= 0 and positive in total")
    return m


def read_beta(beta: Any) -> float:
    """An inverse temperature: finite and >= 0."""
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
    if isinstance(values, Tensor) and values.dtype in (torch.float32, torch.float64):
        return values.detach()
    return as_tensor(values, name)
