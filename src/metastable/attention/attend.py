"""`attend`: the mean of the values under softmax attention, and the log-partition; validation and dispatch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import shown
from metastable.attention.batch import attend_many, dimensions
from metastable.attention.direct import LARGEST_SCORE, MOST_AT_ONCE, PRODUCTS, attend_at_once
from metastable.attention.inputs import read_beta, read_operands
from metastable.attention.kernel import Attended, check_rtol
from metastable.attention.operands import Operands
from metastable.attention.select import KERNELS, LEAST_PAIRS, products_first, select
from metastable.errors import InvalidInput


def attend(
    queries: Any,
    keys: Any,
    mass: Any = None,
    beta: float | Any = 1.0,
    *,
    values: Any = None,
    kernel: str = "auto",
    rtol: float | None = None,
) -> Attended:
    """m_i = sum_j m_j e^{beta <q_i, k_j>} v_j / Z_i,   log Z_i = log sum_j m_j e^{beta <q_i, k_j>}.

    queries (n_q, d), keys (n_k, d); mass (n_k,) or None for 1/n_k each (so that Z is an expectation);
    values (n_k, d_v) or None for the keys themselves. `kernel` is "auto" or one of the names in `KERNELS`.
    `rtol` allows an approximation whose stated error is below it, and "auto" takes the cheapest one;
    None asks for all digits. Errors are relative to the longest value (mean) and to Z itself (log-partition).
    float32 tokens are computed in float64 where their own precision does not meet `rtol`.

    Many systems at once: queries (b, n_q, d), keys (b, n_k, d), values (b, n_k, d_v), mass (b, n_k) or (n_k,),
    beta a number or one per system; the mean is (b, n_q, d_v), and all digits are kept.

    >>> attend([[1.0, 0.0]], [[1.0, 0.0], [-1.0, 0.0]], beta=2.0).mean[0, 0].item()  # tanh(2)
    0.964027580075...
    """
    if type(kernel) is str and kernel == "auto" and (rtol is None or (type(rtol) is float and 0.0 < rtol < 1.0)):
        found = _at_once(queries, keys, mass, beta, values, MOST_AT_ONCE if rtol is None else LEAST_PAIRS - 1)
        if found is not None:
            return found
    check_kernel(kernel, rtol)
    if dimensions(queries) == 3:
        return attend_many(queries, keys, values, mass, beta, kernel)
    beta = read_beta(beta)
    operands = read_operands(queries, keys, values, mass, beta)
    dtype = operands.queries.dtype
    _require_digits(operands, torch.float64 if kernel == "auto" and rtol is not None else dtype)
    if operands.mass.dtype != dtype:
        least, largest, _ = operands.masses
        if not torch.finfo(dtype).tiny <= least <= largest <= torch.finfo(dtype).max:
            return _in_double(operands.double(), kernel, rtol, dtype)
        operands = replace(operands, mass=operands.mass.to(dtype))
    return attend_operands(operands, kernel, rtol)


def _at_once(queries: Any, keys: Any, mass: Any, beta: Any, values: Any, most: int) -> Attended | None:
    """The call that is made most, of few tokens in many dimensions, with one look at it; None where it is another.

    most: pairs up to which a tolerance, if there is one, makes no difference. Whatever is not as expected here is
    refused, or read as what it is, by the checks of `attend`.
    """
    same = keys is queries
    queries, mass = _without_copy(queries), _without_copy(mass)
    keys, v = queries if same else _without_copy(keys), _without_copy(values)
    v = keys if v is None else v
    if not (_plain(queries) and (same or _plain(keys)) and (v is keys or _plain(v))):
        return None
    (n, d), (n_k, d_v) = queries.shape, v.shape
    if type(beta) is int and 0 <= beta <= LARGEST_SCORE:
        beta = float(beta)
    if not (0 < n * n_k <= most and products_first(min(d, d_v)) and type(beta) is float and beta >= 0.0):
        return None
    if not same and keys.shape != (n_k, d):
        return None
    if mass is not None and not (_plain(mass, 1) and mass.shape[0] == n_k):
        return None
    found = attend_at_once(queries, keys, v, mass, beta)
    return None if found is None else Attended(*found, kernel=PRODUCTS.name)


def _without_copy(array: Any) -> Any:
    """An array of numpy as the tensor of the same numbers, where it is as plain as that; anything else as it is."""
    if type(array) is not np.ndarray or array.dtype != np.float64:
        return array
    flags = array.flags
    return torch.from_numpy(array) if flags.c_contiguous and flags.writeable else array


def _plain(tensor: Any, axes: int = 2) -> bool:
    """Whether it is a tensor of float64 on the CPU, in C order and nothing else."""
    return (
        type(tensor) is Tensor
        and tensor.dtype is torch.float64
        and tensor.is_cpu
        and tensor.layout is torch.strided
        and not (tensor.is_nested or tensor.requires_grad or tensor.is_neg())
        and tensor.ndim == axes
        and tensor.is_contiguous()
    )


def attend_unchecked(
    queries: Float[Tensor, "q d"],
    keys: Float[Tensor, "k d"],
    values: Float[Tensor, "k v"],
    mass: Float[Tensor, "k"],
    beta: float,
    *,
    kernel: str = "auto",
    rtol: float | None = None,
    rounding: float | None = None,
) -> Attended:
    """`attend` without its checks: for right-hand sides, whose inputs were validated when the run began."""
    return attend_operands(Operands.checked_before(queries, keys, values, mass, beta), kernel, rtol, rounding)


def attend_operands(operands: Operands, kernel: str, rtol: float | None, rounding: float | None = None) -> Attended:
    """Attention by the kernel of that name, or by the one that is chosen where the name is "auto".

    rounding: what float32 may round away on a GPU, where that is more than `rtol` (see `select`).
    """
    if kernel != "auto":
        return KERNELS[kernel].compute(operands, rtol)
    chosen, dtype = select(operands, rtol, rounding), operands.queries.dtype
    if rtol is None:
        return chosen.compute(operands, None)
    if dtype != torch.float64 and chosen.rounding(operands) > rtol:
        return _in_double(operands.double(), "auto", rtol, dtype)
    found = chosen.compute(operands, rtol)
    if found.error is None or found.error <= rtol or chosen.precision is torch.float32:
        return found
    return select(operands, None).compute(operands, None)


def _in_double(operands: Operands, kernel: str, rtol: float | None, dtype: torch.dtype) -> Attended:
    """Computed in float64 and returned in the precision of the tokens, which rounds the results once."""
    found = attend_operands(operands, kernel, rtol)
    error = None
    if rtol is not None:
        largest = float(found.log_partition.abs().max()) if len(operands.queries) else 0.0
        stated = KERNELS[found.kernel].rounding(operands) if found.error is None else found.error
        error = stated + torch.finfo(dtype).eps * (1 + largest)
    return Attended(found.mean.to(dtype), found.log_partition.to(dtype), kernel=found.kernel, error=error)


def _require_digits(operands: Operands, dtype: torch.dtype) -> None:
    """Refuse scores that have no digits after the point in that precision: what is lost of them exceeds one."""
    if not 2 * torch.finfo(dtype).eps * operands.largest_score <= 1:
        raise InvalidInput(
            f"scores up to beta |q| |k| = {operands.largest_score:.3g} have no digits left in "
            f"{str(dtype).removeprefix('torch.')}; use hardmax, or a smaller beta than {operands.beta:g}"
        )


def check_kernel(kernel: Any, rtol: Any) -> None:
    """Refuse an unknown kernel's name or a tolerance out of range."""
    check_rtol(rtol)
    if not (isinstance(kernel, str) and (kernel == "auto" or kernel in KERNELS)):
        raise InvalidInput(f"unknown kernel {shown(kernel)[:30]}; choose from auto, {', '.join(sorted(KERNELS))}")


def check_beta(beta: Any) -> None:
    """Refuse an inverse temperature that is not finite and >= 0."""
    read_beta(beta)
