"""Row-wise arithmetic on many tokens of small dimension, fused into one pass over memory.

With n = 10^6 tokens in d = 2 a fast attention costs tens of milliseconds, and every separate pass over the tokens
a few more. Each function here does in one pass, on all cores, what tensor arithmetic does in several; a handful of
tokens, high-dimensional input and tensors on a GPU take the plain expression, which is the definition. Both agree
to rounding. A few hundred tokens are fused for another reason: a product with a 2 x 2 matrix goes to a BLAS that
splits it over its threads and waits for them in a loop, for as long as other processes keep the cores.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeGuard

import numba
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.threads import over_rows

FUSED_ROWS, FUSED_DIMENSION = 32, 8
"""Fused passes pay from this number of rows, up to this dimension: below, a call of the plain expression costs less
than the start of a pass; above, a product of matrices is faster than loops over coordinates."""

_fused = numba.njit(nogil=True, cache=True, error_model="numpy")
"""No fast arithmetic: where a product may be joined with a sum, the compiler decides anew for the vectors of a
loop, for its last rows and for arrays that might overlap, and last digits depend on threads and on where memory
is."""
_BLOCK = 512
"""Rows that stay in the first cache (32 kB) while several arrays are added up: 512 rows of d = 8 in float64."""
_NANOSECONDS = 2.0
"""Rough cost of one number read or written, for the choice of threads."""


def fusible(*tensors: Tensor) -> bool:
    """Whether all tensors are long, thin, contiguous, on the CPU and no variables of a gradient."""
    return all(
        t.device.type == "cpu"
        and t.shape[-2] >= FUSED_ROWS
        and t.shape[-1] <= FUSED_DIMENSION
        and t.is_contiguous()
        and not t.requires_grad
        and t.dtype in (torch.float32, torch.float64)
        for t in tensors
    )


def dense(value: Any) -> TypeGuard[Tensor]:
    """Whether a value is a tensor that holds its numbers one by one: not nested, not sparse, not without any."""
    return isinstance(value, Tensor) and value.layout is torch.strided and not (value.is_nested or value.is_meta)


def apply(points: Float[Tensor, "n a"], matrix: Float[Tensor, "a b"]) -> Float[Tensor, "n b"]:
    """X A, every row times a small matrix."""
    if not (fusible(points) and matrix.shape[1] <= FUSED_DIMENSION):
        return points @ matrix
    out = torch.empty((points.shape[0], matrix.shape[1]), dtype=points.dtype)
    _over(_apply, points, points.view(-1).numpy(), _rows(matrix), out.view(-1).numpy())
    return out


def inner(a: Float[Tensor, "n d"], b: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
    """<a_i, b_i> of every row."""
    if not fusible(a, b):
        return (a * b).sum(1)
    out = torch.empty(len(a), dtype=torch.promote_types(a.dtype, b.dtype))
    _over(_inner, a, a.numpy(), b.numpy(), out.numpy())
    return out


def normalize(points: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """x/|x| of every row."""
    if not (points.ndim == 2 and fusible(points)):
        return points / torch.linalg.vector_norm(points, dim=-1, keepdim=True)
    out = torch.empty_like(points)
    _over(_normalize, points, points.numpy(), out.numpy())
    return out


def project_tangent(points: Float[Tensor, "n d"], vectors: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
    """P_x v = v - <x, v> x of every row."""
    if not (points.ndim == 2 and points.shape == vectors.shape and fusible(points, vectors)):
        return vectors - (points * vectors).sum(-1, keepdim=True) * points
    out = torch.empty_like(points)
    _over(_project_tangent, points, points.numpy(), vectors.numpy(), out.numpy())
    return out


def project_back(
    points: Float[Tensor, "n d"],
    vectors: Float[Tensor, "n d"],
    cotangents: Float[Tensor, "n d"],
    found: Float[Tensor, "n d"],
) -> Float[Tensor, "n d"]:
    """f - <x, v> w - <x, w> v of every row: what P_x v adds to the cotangents f of x when those of P_x v are w."""
    if not fusible(points, vectors, cotangents, found):
        along, beside = inner(points, vectors)[:, None], inner(points, cotangents)[:, None]
        return found - along * cotangents - beside * vectors
    out = torch.empty_like(points)
    arrays = (part.numpy() for part in (points, vectors, cotangents, found, out))
    _over(_project_back, points, *arrays)
    return out


def project_applied(
    points: Float[Tensor, "n d"],
    values: Float[Tensor, "n v"],
    matrix: Float[Tensor, "v d"] | None,
    out: Float[Tensor, "n d"] | None = None,
) -> Float[Tensor, "n d"]:
    """P_x (a A) of every row a of `values` (A = I if None), written to `out` if that is given."""
    if not (fusible(points, values) and (out is None or out.is_contiguous())):
        moved = project_tangent(points, values if matrix is None else values @ matrix)
        return moved if out is None else out.copy_(moved)
    result = torch.empty_like(points) if out is None else out
    if matrix is None:
        _over(_project_tangent, points, points.numpy(), values.numpy(), result.numpy())
    else:
        arrays = (points.view(-1).numpy(), values.view(-1).numpy(), _rows(matrix), result.view(-1).numpy())
        _over(_project_applied, points, *arrays)
    return result


def combine(
    points: Float[Tensor, "n d"],
    stages: Float[Tensor, "s n d"],
    weights: Float[Tensor, "s"],
    unit: bool,
    lengths: Float[Tensor, "n"] | None = None,
) -> Float[Tensor, "n d"]:
    """x + sum_j w_j k_j of every row, scaled back to length one if `unit`; lengths: memory for those before."""
    if not fusible(points, stages):
        moved = points + (weights.to(points) @ stages.view(len(stages), -1)).view_as(points)
        if lengths is not None:
            torch.linalg.vector_norm(moved, dim=1, out=lengths)
        return normalize(moved) if unit else moved
    out = torch.empty_like(points)
    flat, weight = points.view(-1).numpy(), weights.to(points.dtype).numpy()
    before = (points.new_empty(0) if lengths is None else lengths).numpy()
    arrays = stages.view(len(stages), -1).numpy(), weight, unit, out.view(-1).numpy(), before
    _over(_combine, points, (0,) * points.shape[1], flat, *arrays, reads=len(stages))
    return out


def largest_tangential(
    points: Float[Tensor, "n d"], stages: Float[Tensor, "s n d"], weights: Float[Tensor, "s"]
) -> float:
    """max_i |P_{x_i} sum_j w_j k_j,i|; infinite when anything is not finite."""
    if fusible(points, stages):
        flat, weight = points.view(-1).numpy(), weights.to(points.dtype).numpy()
        arrays = (0,) * points.shape[1], flat, stages.view(len(stages), -1).numpy(), weight
        largest = max(_over(_largest_tangential, points, *arrays, reads=len(stages)))
        return math.sqrt(largest) if math.isfinite(largest) else math.inf
    error = project_tangent(points, (weights.to(points) @ stages.view(len(stages), -1)).view_as(points))
    length = float(torch.linalg.vector_norm(error, dim=1).max())
    return length if math.isfinite(length) else math.inf


def largest_damped(
    points: Float[Tensor, "n d"],
    stages: Float[Tensor, "s n d"],
    weights: Float[Tensor, "2 s"],
    share: float,
) -> float:
    """max_i e_i^2 / sqrt(e_i^2 + share f_i^2), e_i = |P sum_j w_0j k_j,i|, f_i = |P sum_j w_1j k_j,i|.

    Infinite when anything is not finite.
    """
    if fusible(points, stages):
        flat, weight = points.view(-1).numpy(), weights.to(points.dtype).numpy()
        arrays = (0,) * points.shape[1], flat, stages.view(len(stages), -1).numpy(), weight, share
        largest = max(_over(_largest_damped, points, *arrays, reads=len(stages)))
        return largest if math.isfinite(largest) else math.inf
    largest = float(damped(points, stages, weights, share))
    return largest if math.isfinite(largest) else math.inf


def damped(
    points: Float[Tensor, "n d"], stages: Float[Tensor, "s n d"], weights: Float[Tensor, "2 s"], share: float
) -> Float[Tensor, ""]:
    """`largest_damped` as a tensor, which nobody has to wait for; NaN or infinite when anything is not finite."""
    errors = (weights.to(points) @ stages.view(len(stages), -1)).view(2, *points.shape)
    first, second = (project_tangent(points, error).square().sum(1) for error in errors)
    return _quotients(first, second, share).max()


def largest_quotient(first: Float[Tensor, "n"], second: Float[Tensor, "n"], share: float) -> float:
    """max_i a_i / sqrt(a_i + share b_i) with 0/0 = 0; infinite when anything is not finite."""
    largest = float(_quotients(first, second, share).max())
    return largest if math.isfinite(largest) else math.inf


def _quotients(first: Tensor, second: Tensor, share: float) -> Tensor:
    return torch.where(first == 0, first, first / torch.sqrt(first + share * second))


def mean_spread(mean: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> float:
    """sum_i m_i (1 - |y_i|^2)_+, the spread of attention when the y_i are means of points on the sphere."""
    if fusible(mean):
        return math.fsum(_over(_mean_spread, mean, mean.numpy(), mass.numpy()))
    return float(mass @ (1 - mean.square().sum(1)).clamp(min=0))


def _over(kernel: Callable[..., Any], like: Tensor, *arrays: Any, reads: int = 1) -> list[float]:
    """Run a kernel over blocks of rows; what the blocks return, in the order of the rows."""
    n, d = like.shape
    returned: dict[int, float] = {}

    def work(start: int, stop: int) -> None:
        returned[start] = kernel(start, stop, *arrays)

    over_rows(work, n, cost=_NANOSECONDS * n * d * (1 + reads))
    return [returned[start] for start in sorted(returned)]


# Dimensions are the lengths of tuples, which the compiler knows: only so it unrolls the loops over coordinates and
# vectorises those over rows.


def _rows(matrix: Tensor) -> tuple[tuple[Any, ...], ...]:
    """A small matrix as a tuple of tuples of numbers of its own precision."""
    return tuple(tuple(row) for row in matrix.numpy())


@_fused
def _apply(start, stop, x, matrix, out):  # type: ignore[no-untyped-def]
    inputs, outputs = len(matrix), len(matrix[0])
    for i in range(start, stop):
        for b in range(outputs):
            total = x[inputs * i] * matrix[0][b]
            for a in range(1, inputs):
                total += x[inputs * i + a] * matrix[a][b]
            out[outputs * i + b] = total


@_fused
def _inner(start, stop, a, b, out):  # type: ignore[no-untyped-def]
    for i in range(start, stop):
        total = a[i, 0] * b[i, 0]
        for c in range(1, a.shape[1]):
            total += a[i, c] * b[i, c]
        out[i] = total


@_fused
def _normalize(start, stop, x, out):  # type: ignore[no-untyped-def]
    for i in range(start, stop):
        square = x[i, 0] * x[i, 0]
        for a in range(1, x.shape[1]):
            square += x[i, a] * x[i, a]
        length = np.sqrt(square)
        for a in range(x.shape[1]):
            out[i, a] = x[i, a] / length


@_fused
def _project_tangent(start, stop, x, v, out):  # type: ignore[no-untyped-def]
    for i in range(start, stop):
        inner = x[i, 0] * v[i, 0]
        for a in range(1, x.shape[1]):
            inner += x[i, a] * v[i, a]
        for a in range(x.shape[1]):
            out[i, a] = v[i, a] - inner * x[i, a]


@_fused
def _project_back(start, stop, x, v, w, found, out):  # type: ignore[no-untyped-def]
    for i in range(start, stop):
        along, beside = x[i, 0] * v[i, 0], x[i, 0] * w[i, 0]
        for a in range(1, x.shape[1]):
            along += x[i, a] * v[i, a]
            beside += x[i, a] * w[i, a]
        for a in range(x.shape[1]):
            out[i, a] = found[i, a] - along * w[i, a] - beside * v[i, a]


@_fused
def _project_applied(start, stop, x, values, matrix, out):  # type: ignore[no-untyped-def]
    inputs, width = len(matrix), len(matrix[0])
    for i in range(start, stop):
        inner = x[width * i] * 0
        for b in range(width):
            total = values[inputs * i] * matrix[0][b]
            for a in range(1, inputs):
                total += values[inputs * i + a] * matrix[a][b]
            inner += total * x[width * i + b]
        # Computed twice: storing it in between would cost more.
        for b in range(width):
            total = values[inputs * i] * matrix[0][b]
            for a in range(1, inputs):
                total += values[inputs * i + a] * matrix[a][b]
            out[width * i + b] = total - inner * x[width * i + b]


@_fused
def _combine(start, stop, coordinates, x, stages, weights, unit, out, lengths):  # type: ignore[no-untyped-def]
    width = len(coordinates)
    for first in range(start, stop, _BLOCK):
        low, high = width * first, width * min(first + _BLOCK, stop)
        moved, before = out[low:high], x[low:high]
        for a in range(len(moved)):
            moved[a] = before[a]
        for j in range(len(weights)):
            weight, stage = weights[j], stages[j, low:high]
            if weight != 0:
                for a in range(len(moved)):
                    moved[a] += weight * stage[a]
        if unit:
            for i in range(len(moved) // width):
                square = moved[width * i] * moved[width * i]
                for a in range(1, width):
                    square += moved[width * i + a] * moved[width * i + a]
                length = np.sqrt(square)
                if len(lengths) > 0:
                    lengths[first + i] = length
                for a in range(width):
                    moved[width * i + a] /= length


@_fused
def _largest_tangential(start, stop, coordinates, x, stages, weights):  # type: ignore[no-untyped-def]
    width = len(coordinates)
    room = np.empty(width * _BLOCK, dtype=x.dtype)
    largest = 0.0
    for first in range(start, stop, _BLOCK):
        low, high = width * first, width * min(first + _BLOCK, stop)
        error, after = room[: high - low], x[low:high]
        error[:] = 0
        for j in range(len(weights)):
            weight, stage = weights[j], stages[j, low:high]
            for a in range(len(error)):
                error[a] += weight * stage[a]
        for i in range(len(error) // width):
            inner, square = 0.0, 0.0
            for a in range(width):
                inner += error[width * i + a] * after[width * i + a]
                square += error[width * i + a] * error[width * i + a]
            tangential = square - inner * inner
            if not np.isfinite(tangential):
                tangential = np.inf
            largest = max(largest, tangential)
    return largest


@_fused
def _largest_damped(start, stop, coordinates, x, stages, weights, share):  # type: ignore[no-untyped-def]
    width = len(coordinates)
    room = np.empty((2, width * _BLOCK), dtype=x.dtype)
    largest = 0.0
    for first in range(start, stop, _BLOCK):
        low, high = width * first, width * min(first + _BLOCK, stop)
        error, other, after = room[0, : high - low], room[1, : high - low], x[low:high]
        error[:] = 0
        other[:] = 0
        for j in range(weights.shape[1]):
            weight, beside, stage = weights[0, j], weights[1, j], stages[j, low:high]
            if weight != 0 or beside != 0:
                for a in range(len(error)):
                    error[a] += weight * stage[a]
                    other[a] += beside * stage[a]
        for i in range(len(error) // width):
            inner, square, inner_other, square_other = 0.0, 0.0, 0.0, 0.0
            for a in range(width):
                place = width * i + a
                inner += error[place] * after[place]
                square += error[place] * error[place]
                inner_other += other[place] * after[place]
                square_other += other[place] * other[place]
            tangential = max(square - inner * inner, 0.0)
            beside_it = max(square_other - inner_other * inner_other, 0.0)
            if not (np.isfinite(square) and np.isfinite(square_other)):
                return np.inf
            if tangential > 0:
                largest = max(largest, tangential / np.sqrt(tangential + share * beside_it))
    return largest


@_fused
def _mean_spread(start, stop, mean, mass):  # type: ignore[no-untyped-def]
    spread = 0.0
    for i in range(start, stop):
        square = 0.0
        for a in range(mean.shape[1]):
            square += mean[i, a] * mean[i, a]
        spread += mass[i] * max(0.0, 1.0 - square)
    return spread
