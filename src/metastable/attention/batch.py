"""Attention of many small systems at once: what it is given, and by which kernel it is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import array, numbers, shape, shown
from metastable.attention.direct import MAX_COLUMNS, attend_systems
from metastable.attention.gpu import attend_batch
from metastable.attention.inputs import as_floating, read_beta, read_mass, read_tokens
from metastable.attention.kernel import Attended
from metastable.attention.lengths import all_finite
from metastable.errors import InvalidInput


def dimensions(tokens: Any) -> int | None:
    """The number of axes of what may be an array; None where nothing can be said."""
    sizes = shape(tokens)
    if isinstance(sizes, tuple | torch.Size):
        return len(sizes)
    try:
        return array(tokens).ndim if isinstance(tokens, list | tuple) else None
    except Exception:
        return None


def attend_many(queries: Any, keys: Any, values: Any, mass: Any, beta: Any, kernel: str) -> Attended:
    """`attend` of b systems: checked, then computed with all digits of their precision."""
    if kernel != "auto":
        raise InvalidInput(f'many systems at once are attended by kernel="auto", got {shown(kernel)}')
    q, k, v = read_tokens(queries, keys, values, batched=True)
    for name, tokens in (("queries", q), ("keys", k), ("values", v)):
        if tokens.is_cpu and not all_finite(tokens):
            system = int((~torch.isfinite(tokens).all(dim=(1, 2))).nonzero()[0])
            raise InvalidInput(f"{name} must be finite, got a NaN or infinity in system {system}")
    inverse = read_betas(beta, len(q)).to(q)
    _require_digits(q, k, inverse)
    return Attended(*attend_many_unchecked(q, k, v, _mass(mass, k), inverse), kernel="batch")


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


def read_betas(beta: Any, b: int) -> Float[Tensor, "b"]:
    """A number >= 0 for all of b systems, or one for each of them."""
    if dimensions(beta) != 1:
        return torch.full((b,), read_beta(beta), dtype=torch.float64)
    row = numbers(beta, "beta", least=0)
    if len(row) != b:
        raise InvalidInput(f"beta must be a number or one for each of {b} systems, got {len(row)}")
    return torch.tensor(row, dtype=torch.float64)


def _mass(mass: Any, keys: Tensor) -> Tensor:
    if mass is not None and dimensions(mass) == 1:
        one = as_floating(mass, "mass")
        mass = one.expand(len(keys), -1) if one.shape == keys.shape[1:2] else one
    return read_mass(mass, keys).to(keys.dtype)


def _require_digits(queries: Tensor, keys: Tensor, beta: Tensor) -> None:
    """Refuse scores that have no digits after the point, as `attend` does."""
    if not queries.is_cpu or not queries.numel():
        return
    lengths = (torch.linalg.vector_norm(x, dim=2).amax(dim=1).double() for x in (queries, keys))
    scores = (beta.double() * next(lengths) * next(lengths)).numpy()
    if not (2 * torch.finfo(queries.dtype).eps * scores <= 1).all():
        system = int(np.argmax(~(2 * torch.finfo(queries.dtype).eps * scores <= 1)))
        raise InvalidInput(
            f"scores up to beta |q| |k| = {scores[system]:.3g} of system {system} have no digits left in "
            f"{str(queries.dtype).removeprefix('torch.')}; use a smaller beta than {float(beta[system]):g}"
        )
