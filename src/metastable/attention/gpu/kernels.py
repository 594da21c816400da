"""Softmax attention on CUDA: the named kernels of the room for tensors on a GPU, and `attend_batch`.

    'triton'       float32 accuracy: registers for d <= 2, float16 and TF32 pairs on tensor cores above (relative
                   error about 1e-6, plus the rounding of the scores)
    'gpu_float64'  float64 accuracy at all d
    'circle_gpu'   keys on the circle gathered into cells: relative error 1e-10 up to beta max|q| = 311, n = 1e8
    'flash_bf16', 'flash_fp16'  torch's FlashAttention in half precision: three or four digits, by choice only

Results are on the device and in the dtype of the queries. Nothing here needs a GPU to be imported.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from metastable.arguments import shown
from metastable.attention.gpu.batch import attend_batch_small
from metastable.attention.gpu.circle import RELATIVE_ERROR, attend_circle_gpu
from metastable.attention.gpu.frame import Promise, frame_of
from metastable.attention.gpu.jit import HAS_TRITON
from metastable.attention.gpu.large import LARGEST_D as LARGEST_FUSED_D
from metastable.attention.gpu.large import LARGEST_SAME_D, additions_of_large, attend_large
from metastable.attention.gpu.launch import multiprocessors
from metastable.attention.gpu.matrix_library import additions_of_library, attend_by_library
from metastable.attention.gpu.small import LARGEST_D as LARGEST_SMALL_D
from metastable.attention.gpu.small import LEAST_BITS, additions_of_small, attend_small
from metastable.attention.inputs import read_beta, read_mass, read_tokens
from metastable.attention.kernel import AllDigits, in_any_order
from metastable.attention.lengths import all_finite
from metastable.attention.operands import Operands
from metastable.errors import InvalidInput, MissingExtra
from metastable.rowwise import dense

LARGEST_FLASH_D = 256
"""Largest d and d_v of torch's FlashAttention."""
MOST_RATIO_BF16, MOST_RATIO_FP16 = 1e30, 1e3
"""Largest max m / min m in half precision, where masses multiply values: a bfloat16 number ends at 1e-38, a float16
number has all its digits from 6e-5 on."""
MOST_SHARP = 311.0
"""Largest beta max|q| of the circle's cells: twice it, in bits, is the least exponent of the float64 kernel."""


def gpu_available() -> bool:
    """Whether the kernels of this file can run: a CUDA device that torch sees, and Triton."""
    return HAS_TRITON and torch.cuda.is_available()


def require_cuda(operands: Operands, kernel: str) -> None:
    """Refuse tensors that are not on a CUDA device, or a machine without one, in a sentence."""
    if not torch.cuda.is_available():
        raise InvalidInput(f"kernel {kernel!r} needs a CUDA device and torch sees none here; use kernel='auto'")
    if not operands.queries.is_cuda or not operands.keys.is_cuda:
        raise InvalidInput(
            f"kernel {kernel!r} needs tensors on a CUDA device, got {operands.queries.device} and "
            f"{operands.keys.device}; move them with .to('cuda')"
        )
    if not HAS_TRITON:
        raise MissingExtra(
            f"kernel {kernel!r} needs Triton, which comes with the CUDA builds of torch for Linux; "
            "install one of those"
        )


def on_cuda(name: str) -> Callable[[AllDigits], AllDigits]:
    """A kernel behind the checks that all share; no queries need no kernel."""

    def named(kernel: AllDigits) -> AllDigits:
        @functools.wraps(kernel)
        def checked(operands: Operands) -> tuple[Tensor, Tensor]:
            require_cuda(operands, name)
            queries = operands.queries
            if len(queries) == 0:
                return queries.new_zeros(0, operands.values.shape[1]), queries.new_zeros(0)
            return kernel(operands)

        return checked

    return named


@on_cuda("triton")
def attend_triton(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) at float32 accuracy on CUDA, whatever the dtype of the tensors."""
    return attend_in_precision(operands, torch.float32)


def triton_additions(operands: Operands) -> float:
    """Float32 additions after one another: of the keys between two flushes, and of the flushes of a chunk."""
    n_q, (n_k, d), d_v = len(operands.queries), operands.keys.shape, operands.values.shape[1]
    if not operands.queries.is_cuda or n_q == 0:
        return in_any_order(operands)
    widest, processors = max(d, d_v), multiprocessors(operands.queries.device)
    if widest <= LARGEST_SMALL_D:
        return additions_of_small(n_q, n_k, d, d_v, processors)
    if widest <= (LARGEST_SAME_D if operands.values_are_keys else LARGEST_FUSED_D):
        return additions_of_large(n_q, n_k, widest, operands.values_are_keys, processors)
    return additions_of_library(n_k)


def triton_cost(operands: Operands, _rtol: float) -> float:
    """In pairs of float64: measured on an H200, float32 is five times as fast (d = 3) or more."""
    return operands.pairs / 5


@on_cuda("gpu_float64")
def attend_gpu_float64(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) at float64 accuracy on CUDA, whatever the dtype of the tensors."""
    return attend_in_precision(operands, torch.float64)


@on_cuda("circle_gpu")
def _attend_circle(operands: Operands) -> tuple[Tensor, Tensor]:
    return attend_circle_gpu(operands.queries, operands.keys, operands.values, operands.mass, operands.beta)


def attend_circle(operands: Operands, _rtol: float) -> tuple[Tensor, Tensor, float]:
    """(mean, log Z, error) with the keys, unit vectors that are the values, gathered into cells of the circle."""
    return *_attend_circle(operands), RELATIVE_ERROR


def circle_gpu_cost(operands: Operands, _rtol: float) -> float:
    """Measured on an H200, in pairs of float64: launches, the keys sorted, and the proxies that queries meet."""
    if operands.sharpness > MOST_SHARP:
        return math.inf
    n_q, n_k = operands.queries.shape[0], operands.keys.shape[0]
    return 7e8 + 150.0 * n_k + n_q * max(256.0, 25.2 * operands.sharpness)


@on_cuda("flash_bf16")
def attend_flash(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) by torch's FlashAttention in bfloat16: relative error 2e-3."""
    return _flash(operands, torch.bfloat16)


@on_cuda("flash_fp16")
def attend_flash_fp16(operands: Operands) -> tuple[Tensor, Tensor]:
    """(mean, log Z) by torch's FlashAttention in float16: relative error 3e-4."""
    return _flash(operands, torch.float16)


def attend_batch(
    queries: Any,
    keys: Any,
    values: Any = None,
    mass: Any = None,
    beta: float | Float[Tensor, "b"] = 1.0,
) -> tuple[Tensor, Tensor]:
    """m_si = sum_j m_sj e^{beta_s <q_si, k_sj>} v_sj / Z_si, log Z_si, for b independent systems s at once.

    queries (b, n_q, d), keys (b, n_k, d), values (b, n_k, d_v) or None for the keys, mass (b, n_k) or None for
    1/n_k each, beta a number or one per system. On a CUDA device and for d <= 8 one kernel computes all systems;
    elsewhere torch's batched products do. The precision is that of the queries.

    >>> pair = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]])
    >>> attend_batch(pair[:, :1], pair, beta=2.0)[0][0, 0, 0].item()  # tanh(2)
    0.96402...
    """
    q, k, v = read_tokens(queries, keys, values, batched=True)
    if q.is_cpu and not all(all_finite(x) for x in (q, k, v)):  # elsewhere, a look could not be recorded in a graph
        raise InvalidInput("queries, keys and values must be finite, got a NaN or infinity")
    m = None if mass is None else read_mass(mass, k).to(k.dtype)
    if isinstance(beta, Tensor) and beta.ndim > 0:
        if not dense(beta) or beta.shape != (len(q),) or beta.is_complex():
            raise InvalidInput(f"beta must be a number or have shape ({len(q)},), got {shown(beta)}")
        if beta.is_cpu and not bool((torch.isfinite(beta) & (beta >= 0)).all()):
            raise InvalidInput(f"beta must be finite and >= 0, got {shown(beta.tolist())}")
    else:
        beta = read_beta(beta)
    if q.is_cuda and HAS_TRITON and max(k.shape[2], v.shape[2]) <= LARGEST_SMALL_D and q.numel():
        return attend_batch_small(q, k, v, m, beta)
    inverse = torch.as_tensor(beta, dtype=q.dtype, device=q.device).expand(len(q))
    scores = torch.baddbmm(
        torch.full((1, 1, 1), -math.log(k.shape[1]), dtype=q.dtype, device=q.device)
        if m is None
        else torch.log(m)[:, None, :],
        q * inverse[:, None, None],
        k.transpose(1, 2),
    )
    return torch.softmax(scores, dim=2) @ v, torch.logsumexp(scores, dim=2)


def can_promise(d: int, d_v: int, beta: float, promise: Promise, precision: torch.dtype) -> bool:
    """Whether the bounds of a promise leave the host nothing to ask for.

    Up to d = 8 a row whose sum is too small is computed again, which the host decides; beyond, no row is.
    """
    return max(d, d_v) > LARGEST_SMALL_D or promise.deepest(beta) <= -LEAST_BITS[precision]


def attend_in_precision(
    operands: Operands, precision: torch.dtype, promise: Promise | None = None
) -> tuple[Tensor, Tensor]:
    """The kernel for these dimensions and this precision, on tensors whose rows lie one after the other.

    With a promise that `can_promise`, it is launches only: nothing waits for the device.
    """
    same = operands.values_are_keys
    queries, keys, mass = (x.contiguous() for x in (operands.queries, operands.keys, operands.mass))
    values = keys if same else operands.values.contiguous()
    frame = frame_of(queries, keys, values, mass, operands.beta, promise)
    widest = max(keys.shape[1], values.shape[1])
    if widest <= LARGEST_SMALL_D:
        return attend_small(queries, keys, values, mass, frame, precision, safe=promise is not None)
    if precision == torch.float32 and widest <= (LARGEST_SAME_D if same else LARGEST_FUSED_D):
        return attend_large(queries, keys, values, mass, frame)
    return attend_by_library(queries, keys, values, mass, frame, precision)


def _flash(operands: Operands, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """FlashAttention knows no masses, so unequal ones travel in the values: with e_ij = e^{beta <q_i, k_j>},

    mean = [sum_j e_ij m_j v_j / sum_j e_ij] / [sum_j e_ij m_j / sum_j e_ij].
    """
    operands = operands.seen
    queries, keys, values, mass = operands.queries, operands.keys, operands.values, operands.mass
    d, d_v = keys.shape[1], values.shape[1]
    top = mass.max()
    equal = bool((mass == top).all())
    weighted = values if equal else torch.cat([values * (mass / top)[:, None], (mass / top)[:, None]], dim=1)
    width = 8 * math.ceil(max(d, weighted.shape[1]) / 8)
    if width > LARGEST_FLASH_D:
        column = "" if equal else ", of which one holds the unequal masses"
        raise InvalidInput(
            f"FlashAttention takes dimensions up to {LARGEST_FLASH_D}, got {max(d, weighted.shape[1])}{column}"
        )
    q, k, v = (
        functional.pad(x, (0, width - x.shape[1])).to(dtype)[None, None].contiguous()
        for x in (queries, keys, weighted)
    )
    out, log_sum = torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, False, scale=operands.beta)[:2]
    attended = out[0, 0].to(queries.dtype)
    log_partition = log_sum[0, 0].to(queries.dtype) + torch.log(top).to(queries.dtype)
    if equal:
        return attended[:, :d_v], log_partition
    seen = attended[:, d_v : d_v + 1]
    return attended[:, :d_v] / seen, log_partition + torch.log(seen[:, 0])
