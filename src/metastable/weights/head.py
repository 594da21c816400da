"""`AttentionWeights`: the matrices (V, B) of one attention head, dense or in low-rank factors.

Conventions (points are rows X, one token x per row):
    scores   <x, B y>     ->  (X B) X^T         B = Q^T K
    values   V y          ->  X V^T
    B^T x                 ->  X B
    M = V B^T, the matrix that rules the low-temperature flow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable import rowwise
from metastable.errors import InvalidInput
from metastable.measure import as_tensor, check_dtype, on_device


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
