"""Attention of many small systems at once: by which kernel."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from metastable.attention.direct import MAX_COLUMNS, attend_systems
from metastable.attention.gpu import attend_batch


def attend_many_unchecked(
    queries: Float[Tensor, "b q d"],
    keys: Float[Tensor, "b k d"],
    values: Float[Tensor, "b k v"],
    mass: Float[Tensor, "b k"],
    beta: Float[Tensor, "b"],
) -> tuple[Float[Tensor, "b q v"], Float[Tensor, "b q"]]:
    """(mean, log Z) of b systems whose tensors were checked before, in one precision and on one device."""
    if queries.is_cpu and max(keys.shape[2], values.shape[2]) <= MAX_COLUMNS:
        return attend_systems(queries, keys, values, mass, beta)
    return attend_batch(queries, keys, values, mass, beta)
