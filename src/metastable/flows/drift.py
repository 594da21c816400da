"""`Drift`, the field before the tangent projection, and `Velocity`, the field after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from metastable import rowwise
from metastable.arguments import OneLine
from metastable.errors import InvalidInput


@dataclass(frozen=True, eq=False)
class Drift:
    """F_i = A a_i in the ambient space: rows a_i (`values`) and, where it pays to keep it apart, the matrix A.

    The factors stay apart so that the matrix and the projection are one pass over the tokens. lipschitz: an
    estimate of the field's Lipschitz constant (1/time), with which the integrators bound their steps; a number,
    a function that is called only where a step is chosen, or None: then it is estimated by a finite difference
    along the flow, at the price of one more evaluation per step.

    >>> import torch
    >>> Drift(torch.ones(1, 2), matrix=2 * torch.eye(2)).vector
    tensor([[2., 2.]])
    """

    values: Float[Tensor, "n v"]
    lipschitz: float | Callable[[], float] | None = None
    matrix: Float[Tensor, "v d"] | None = None
    """A^T, if F is not `values` itself."""

    @property
    def vector(self) -> Float[Tensor, "n d"]:
        """F, multiplied out."""
        return self.values if self.matrix is None else rowwise.apply(self.values, self.matrix)

    @property
    def rate(self) -> float:
        """The Lipschitz constant as a number; 0 if nobody knows it."""
        return _number(self.lipschitz)

    def __repr__(self) -> str:
        return f"Drift({tuple(self.values.shape)} values)"


@dataclass(frozen=True, eq=False, repr=False)
class Velocity(OneLine):
    """x' = P_x F, tangent to the sphere (F itself for a Euclidean flow), and how fast it can change."""

    vector: Float[Tensor, "n d"]
    lipschitz: float | Callable[[], float] | None

    @property
    def rate(self) -> float:
        """Estimate of the Lipschitz constant of the field (1/time): the integrators keep step * rate bounded."""
        return _number(self.lipschitz)


@dataclass(frozen=True, eq=False)
class Velocities:
    """The fields of many systems at once, x_s' of every system s, and how fast each of them can change."""

    vectors: Float[Tensor, "b n d"]
    rates: Float[Tensor, "b"]


def checked(returned: object, points: Tensor, flow: object) -> Drift:
    """What a flow's `drift` returned, as a `Drift` that fits the tokens; one sentence if it does not."""
    if isinstance(returned, Tensor):
        returned = Drift(returned)
    elif not isinstance(returned, Drift):
        raise InvalidInput(f"{_whose(flow)} must be a tensor or a Drift, got {type(returned).__name__}")
    values, matrix = returned.values, returned.matrix
    for part in (values,) if matrix is None else (values, matrix):
        if not isinstance(part, Tensor):
            raise InvalidInput(f"{_whose(flow)} must consist of tensors, got {type(part).__name__}")
        if part.requires_grad:
            raise InvalidInput(f"{_whose(flow)} must not require gradients; compute it under torch.no_grad()")
    if matrix is None:
        shape = values.shape
    elif values.ndim == matrix.ndim == 2 and values.shape[1] == matrix.shape[0]:
        shape = values.shape[:1] + matrix.shape[1:]
    else:
        shape = values.shape + matrix.shape
    if shape != points.shape:
        raise InvalidInput(f"{_whose(flow)} must have the tokens' shape {tuple(points.shape)}, got {tuple(shape)}")
    for part in (values,) if matrix is None else (values, matrix):
        if part.dtype != points.dtype or part.device != points.device:
            raise InvalidInput(
                f"{_whose(flow)} must be {_kind(points)} like the tokens, got {_kind(part)}; its parts become so "
                "with .to(points)"
            )
    return returned


def _whose(flow: object) -> str:
    return f"the drift of {type(flow).__name__}"


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} on {tensor.device}"


def _number(lipschitz: float | Callable[[], float] | None) -> float:
    if lipschitz is None:
        return 0.0
    return float(lipschitz() if callable(lipschitz) else lipschitz)
