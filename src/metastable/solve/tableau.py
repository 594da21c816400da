"""`Tableau`: an embedded pair as plain arrays, for the steps of many systems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from metastable.solve.adaptive import Adaptive
from metastable.solve.controller import Controller
from metastable.solve.dop853 import DAMPING, Dop853


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
    def of(cls, pair: Adaptive | Dop853) -> Tableau:
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
        damping, between = (DAMPING, _nested) if isinstance(pair, Dop853) else (0.0, _powers)
        return cls(nodes, table, end, errors, damping, pair.controller, pair.stable, between)


def _powers(s: np.ndarray) -> np.ndarray:
    """Shampine's polynomials."""
    dense = Adaptive.dense.numpy()
    return np.asarray((s[:, None] ** np.arange(1, 1 + dense.shape[1])) @ dense.T)


def _nested(s: np.ndarray) -> np.ndarray:
    """Hairer's polynomial of degree 7 in s."""
    weights = np.zeros((len(s), len(Dop853.dense[0])))
    for power, coefficients in enumerate(reversed(Dop853.dense)):
        weights = (weights + coefficients.numpy()) * (s if power % 2 == 0 else 1 - s)[:, None]
    return weights
