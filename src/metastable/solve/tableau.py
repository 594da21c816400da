"""`Tableau`: an embedded pair as plain arrays, for the steps of many systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from torch import Tensor

from metastable.solve.controller import Controller


@runtime_checkable
class Pair(Protocol):
    """The tables of an embedded pair, as `EmbeddedPair` declares them."""

    nodes: ClassVar[tuple[float, ...]]
    stages: ClassVar[tuple[Tensor, ...]]
    weights: ClassVar[Tensor]
    late_nodes: ClassVar[tuple[float, ...]]
    late_stages: ClassVar[tuple[Tensor, ...]]
    errors: ClassVar[Tensor]
    damping: ClassVar[float]
    controller: ClassVar[Controller]
    stable: ClassVar[float]

    def between(self, s: Float[np.ndarray, "k"]) -> Float[np.ndarray, "k s"]:
        """Weights of all stages in (x(t + s h) - x(t))/h, for s in [0, 1]."""


@dataclass(frozen=True, eq=False)
class Tableau:
    """k_i = v(t + c_i h, x + h sum_j a_ij k_j); the stage number `end` is the velocity at the end of the step.

    The stages after it are those that only the interpolant needs.
    """

    nodes: Float[np.ndarray, "s"]
    table: Float[np.ndarray, "s s"]
    """a_ij; the row of the stage at the end has the weights b_j."""
    end: int
    errors: Float[np.ndarray, "2 e"]
    """Differences e, f of the weights to the embedded formulas: the error of a token is e^2 / sqrt(e^2 + D f^2)."""
    damping: float
    """D, zero where one formula is embedded."""
    controller: Controller
    stable: float
    between: Callable[[np.ndarray], np.ndarray]
    """Parts (k,) of a step -> weights (k, s) of the stages in (x(t + s h) - x(t))/h."""

    @classmethod
    def of(cls, pair: Pair) -> Tableau:
        """The arrays of a pair."""
        end = len(pair.nodes)
        size = end + 1 + len(pair.late_nodes)
        table = np.zeros((size, size))
        for stage, row in enumerate((*pair.stages, pair.weights, *pair.late_stages)):
            table[stage, : len(row)] = row.numpy()
        given = np.atleast_2d(pair.errors.numpy())
        errors = np.zeros((2, end + 1))
        errors[: len(given), : given.shape[1]] = given
        nodes = np.array((*pair.nodes, 1.0, *pair.late_nodes))
        return cls(nodes, table, end, errors, pair.damping, pair.controller, pair.stable, pair.between)
