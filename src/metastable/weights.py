"""`AttentionWeights`: the matrices (V, B) of one attention head, dense or in low-rank factors, and `Schedule`.

Conventions (points are rows X, one token x per row):
    scores   <x, B y>     ->  (X B) X^T         B = Q^T K
    values   V y          ->  X V^T
    B^T x                 ->  X B
    M = V B^T, the matrix that rules the low-temperature flow.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable import rowwise
from metastable.arguments import flag, function, number, numbers, sequence, shown
from metastable.errors import InvalidInput, MetastableError
from metastable.measure import as_tensor, check_dtype, on_device

ROUNDING = 1e-12
"""Relative difference below which two times are one: a few thousand rounding errors of sums of steps."""
DIVIDES = 1e-9
"""How far from whole the number of steps in a layer may be, as in the steppers, which end a stretch where less than
this part of a step is left."""


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """One head: value matrix V (d, d) and score matrix B (d, d); only beta*B matters in softmax attention.

    Build it from dense matrices, `AttentionWeights(V=V, B=B)`, or from factors, `AttentionWeights.from_qkv(...)`;
    factors of rank d_h << d are never multiplied out unless `.V`, `.B` or `.M` is asked for.

    All is kept in float64. Python numbers and float64 arrays keep their digits; a float32 array has only its own
    (0.3 is 0.30000001192... there), which are kept, and `repr` says that the weights were given so.

    >>> w = AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.5], [0.0, 1.0]])
    >>> w.M.tolist()
    [[2.0, 0.0], [0.5, 1.0]]
    """

    query: Float[Tensor, "h d"] | None
    key: Float[Tensor, "h d"] | None
    value: Float[Tensor, "v d"]
    output: Float[Tensor, "d v"] | None
    dense_B: Float[Tensor, "d d"] | None
    _given: str | None

    def __init__(self, V: Any, B: Any) -> None:
        value, score = _matrix(V, "V"), _matrix(B, "B")
        object.__setattr__(self, "_given", _coarsest(V, B))
        for matrix, name in ((value, "V"), (score, "B")):
            if matrix.shape[0] != matrix.shape[1]:
                raise InvalidInput(f"{name} must be square, got shape {tuple(matrix.shape)}")
        if value.shape != score.shape:
            raise InvalidInput(
                f"V and B must have the same shape, got {tuple(value.shape)} and {tuple(score.shape)}"
            )
        self._set(None, None, value, None, score)

    @classmethod
    def from_qkv(cls, Q: Any, K: Any, V: Any, O: Any = None) -> AttentionWeights:
        """B = Q^T K with Q, K of shape (d_h, d); the value matrix is V (d, d), or O V with V (d_v, d), O (d, d_v).

        Q, K, V act on column tokens (q = Q x), as the weight of a torch Linear does.
        """
        query, key, value = _matrix(Q, "Q"), _matrix(K, "K"), _matrix(V, "V")
        d = query.shape[1]
        if key.shape != query.shape:
            raise InvalidInput(
                f"Q and K must have the same shape (d_h, d), got {tuple(query.shape)} and {tuple(key.shape)}"
            )
        if value.shape[1] != d:
            raise InvalidInput(f"V must have {d} columns like Q and K, got shape {tuple(value.shape)}")
        output = None if O is None else _matrix(O, "O")
        if output is None and value.shape[0] != d:
            raise InvalidInput(f"V of shape {tuple(value.shape)} needs O of shape ({d}, {value.shape[0]})")
        if output is not None and output.shape != (d, value.shape[0]):
            raise InvalidInput(f"O must have shape ({d}, {value.shape[0]}), got {tuple(output.shape)}")
        weights = cls.__new__(cls)
        object.__setattr__(weights, "_given", _coarsest(Q, K, V, O))
        weights._set(query, key, value, output, None)
        return weights

    def _set(
        self,
        query: Tensor | None,
        key: Tensor | None,
        value: Tensor,
        output: Tensor | None,
        dense_B: Tensor | None,
    ) -> None:
        for name, tensor in zip(
            ("query", "key", "value", "output", "dense_B"),
            (query, key, value, output, dense_B),
            strict=True,
        ):
            object.__setattr__(self, name, tensor)

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return int(self.value.shape[1])

    @property
    def rank(self) -> int:
        """Number of rows of Q and K: an upper bound of the rank of B (d for dense weights)."""
        return self.d if self.query is None else int(self.query.shape[0])

    @cached_property
    def V(self) -> Float[Tensor, "d d"]:
        """Value matrix, multiplied out."""
        return self.value if self.output is None else self.output @ self.value

    @cached_property
    def B(self) -> Float[Tensor, "d d"]:
        """Score matrix B = Q^T K, multiplied out."""
        if self.dense_B is not None:
            return self.dense_B
        assert self.query is not None and self.key is not None
        return self.query.T @ self.key

    @cached_property
    def M(self) -> Float[Tensor, "d d"]:
        """M = V B^T, whose spectrum rules the low-temperature flow."""
        return self.V @ self.B.T

    @cached_property
    def V_norm(self) -> float:
        """Operator norm of V, through the small factors."""
        if self.output is None:
            return _product_norm(self.value, None)
        return _product_norm(self.output, self.value)

    @cached_property
    def B_norm(self) -> float:
        """Operator norm of B, through the small factors."""
        if self.dense_B is not None:
            return _product_norm(self.dense_B, None)
        assert self.query is not None and self.key is not None
        return _product_norm(self.query.T, self.key)

    def queries(self, points: Tensor) -> Tensor:
        """Rows q_i with <q_i, k_j> = <x_i, B x_j>: X B, or X Q^T for factors."""
        return rowwise.apply(self._rows(points), self.dense_B if self.dense_B is not None else self._query_T)

    def keys(self, points: Tensor) -> Tensor:
        """Rows k_j that go with `queries`: X, or X K^T for factors."""
        points = self._rows(points)
        return points if self.key is None else points @ self.key.T

    def values(self, points: Tensor) -> Tensor:
        """Rows that attention averages: X (V comes after the average), or X V^T when V is a low-rank factor."""
        points = self._rows(points)
        return points if self.output is None else points @ self.value.T

    @property
    def after_average(self) -> Float[Tensor, "v d"]:
        """The matrix that turns an average of `values` into V m, for rows: V^T, or O^T for factors."""
        return (self.value if self.output is None else self.output).T

    def apply_after_average(self, mean: Tensor) -> Tensor:
        """V m from the attended mean of `values`: m V^T, or m O^T for factors."""
        return rowwise.apply(mean, self.after_average)

    def B_transpose(self, points: Tensor) -> Tensor:
        """Rows B^T x_i: X B."""
        points = self._rows(points)
        if self.dense_B is not None:
            return rowwise.apply(points, self.dense_B)
        assert self.key is not None
        return (points @ self._query_T) @ self.key

    def apply_V(self, points: Tensor) -> Tensor:
        """Rows V x_i: X V^T."""
        return self.apply_after_average(self.values(points))

    def _rows(self, points: Any) -> Tensor:
        """Points (n, d) on the device and in the precision of the weights; a flow's are so and stay as they are."""
        like, width = self.value, self.value.shape[1]
        if not (rowwise.dense(points) and points.dtype is like.dtype and points.device == like.device):
            points = on_device(as_tensor(points, "points", like.dtype), like.device)
        if points.ndim != 2 or points.shape[1] != width:
            raise InvalidInput(f"points must have shape (n, {width}), got shape {tuple(points.shape)}")
        return points

    @property
    def _query_T(self) -> Tensor:
        assert self.query is not None
        return self.query.T

    def to(self, *, device: Any = None, dtype: torch.dtype | None = None) -> AttentionWeights:
        """The same weights on another device or in another precision."""
        check_dtype(dtype)
        moved = AttentionWeights.__new__(AttentionWeights)

        def move(tensor: Tensor | None) -> Any:
            return None if tensor is None else on_device(tensor, device, dtype)

        object.__setattr__(moved, "_given", self._given)
        moved._set(*map(move, (self.query, self.key, self.value, self.output, self.dense_B)))
        return moved

    def __repr__(self) -> str:
        shape = "dense" if self.dense_B is not None else f"rank {self.rank}"
        given = f", given in {self._given}" if self._given else ""
        return f"AttentionWeights(d={self.d}, {shape}{given})"


@dataclass(frozen=True, eq=False)
class Schedule:
    """Weights that depend on time: t -> AttentionWeights.

    `Schedule(function)` for a smooth dependence, `Schedule.layers([w_1, ..., w_L], t)` for L layers that share
    [0, t] equally (real layers: piecewise constant). `breakpoints` are the times at which the weights jump; the
    integrators stop there, so that a jump costs no accuracy. `time_scale` is the shortest time in which the weights
    change and change back (the width of a pulse, half the period of an oscillation), which the adaptive method does
    not step over; None has it found by probing (`flows.time_scale` says what that sees). After `end` there are no
    weights.

    >>> Schedule(lambda t: AttentionWeights(V=[[1.0 + t]], B=[[1.0]]))(0.5).V
    tensor([[1.5000]], dtype=torch.float64)
    """

    function: Callable[[float], AttentionWeights]
    breakpoints: tuple[float, ...] = ()
    piecewise_constant: bool = False
    time_scale: float | None = None
    end: float = math.inf

    def __post_init__(self) -> None:
        function(self.function, "the function of a Schedule")
        jumps = tuple(sorted(set(numbers(self.breakpoints, "breakpoints"))))
        scale = None if self.time_scale is None else number(self.time_scale, "time_scale", above=0, finite=False)
        object.__setattr__(self, "breakpoints", jumps)
        object.__setattr__(self, "piecewise_constant", flag(self.piecewise_constant, "piecewise_constant"))
        object.__setattr__(self, "time_scale", scale)
        object.__setattr__(self, "end", number(self.end, "end", above=0, finite=False))

    @classmethod
    def layers(cls, layers: Sequence[AttentionWeights], t: float, knots: Sequence[float] | None = None) -> Schedule:
        """Piecewise constant weights until t: layer l on [knots[l], knots[l+1]), by default L equal parts."""
        stack = sequence(layers, "layers", AttentionWeights, "AttentionWeights")
        if not stack:
            raise InvalidInput("a layered schedule needs at least one layer, got none")
        end = number(t, "t", above=0)
        if knots is None:
            edges = [end * l / len(stack) for l in range(len(stack) + 1)]
        else:
            edges = numbers(knots, "knots", increasing=True)
            if len(edges) != len(stack) + 1:
                raise InvalidInput(f"{len(stack)} layers need {len(stack) + 1} knots, got {len(edges)}")
            if not math.isclose(edges[-1], end, rel_tol=ROUNDING):
                raise InvalidInput(f"the last of the knots must be t = {end:g}, got {edges[-1]:g}")
        if len({w.d for w in stack}) > 1:
            raise InvalidInput(f"all layers must have one dimension, got {shown(sorted({w.d for w in stack}))}")

        def layer_at(time: float) -> AttentionWeights:
            return stack[min(max(bisect.bisect_right(edges, time) - 1, 0), len(stack) - 1)]

        return cls(layer_at, tuple(edges[1:-1]), piecewise_constant=True, end=end)

    def __call__(self, t: float) -> AttentionWeights:
        """The weights at time t (right-continuous at breakpoints)."""
        if t > self.end * (1 + ROUNDING):
            raise InvalidInput(f"the schedule has no weights after t = {self.end:g}, asked for t = {t:g}")
        try:
            weights = self.function(t)
        except MetastableError:
            raise
        except Exception as error:
            reason = shown(f"{type(error).__name__}: {error}")[1:-1]
            raise InvalidInput(f"the function of a Schedule failed at t = {t:g}: {reason}") from error
        if not isinstance(weights, AttentionWeights):
            raise InvalidInput(
                f"a Schedule must return AttentionWeights, got {type(weights).__name__} at t = {t:g}"
            )
        return weights

    def check_run(self, start: float, stop: float, step: float | None) -> None:
        """Refuse a run that outlasts the schedule, and a step that would be cut short by the end of a layer."""
        if stop > self.end * (1 + ROUNDING):
            raise InvalidInput(
                f"the schedule has no weights after t = {self.end:g}, but the run goes on to t = {stop:g}; give "
                f"t = {self.end:g}, or more layers"
            )
        if step is None or not self.piecewise_constant:
            return
        edges = [start]
        for b in self.breakpoints:
            if b > start and not _same_time(b, edges[-1]) and b < stop and not _same_time(b, stop):
                edges.append(b)
        if self.end <= stop * (1 + ROUNDING) and not _same_time(start, stop):
            edges.append(stop)
        for before, after in itertools.pairwise(edges):
            parts = (after - before) / step
            if abs(parts - round(parts)) > DIVIDES or parts < 0.5:
                whole = (after - before) / max(1, math.ceil(parts - DIVIDES))
                raise InvalidInput(
                    f"step = {step:g} does not divide the layer from t = {before:g} to {after:g}; give step = "
                    f"{whole:.10g}, or a whole part of it"
                )

    def __repr__(self) -> str:
        if self.piecewise_constant and math.isfinite(self.end):
            return f"Schedule({len(self.breakpoints) + 1} layers until t = {self.end:g})"
        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        jumps = f", {len(self.breakpoints)} breakpoints" if self.breakpoints else ""
        scale = "" if self.time_scale is None else f", time_scale={self.time_scale:g}"
        return f"Schedule({name}{jumps}{scale})"


def _same_time(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=ROUNDING)


def _matrix(values: Any, name: str) -> Tensor:
    matrix = as_tensor(values, name)
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InvalidInput(f"{name} must be a matrix, got shape {tuple(matrix.shape)}")
    if not bool(torch.isfinite(matrix).all()):
        raise InvalidInput(f"{name} must be finite, got a NaN or infinity")
    return matrix.contiguous()


def _coarsest(*given: Any) -> str | None:
    """The name of the coarsest precision below float64 in which any of the arrays was given; None if none was."""
    kinds = (str(getattr(values, "dtype", "")).removeprefix("torch.") for values in given)
    coarse = sorted(kind for kind in kinds if kind in ("float32", "float16", "bfloat16"))
    return coarse[0] if coarse else None


def _product_norm(left: Tensor, right: Tensor | None) -> float:
    """Operator norm of left @ right through the R factors of their QR decompositions."""
    if right is None:
        return float(torch.linalg.matrix_norm(left, ord=2))
    _, r_left = torch.linalg.qr(left)
    _, r_right = torch.linalg.qr(right.T)
    return float(torch.linalg.matrix_norm(r_left @ r_right.T, ord=2))
