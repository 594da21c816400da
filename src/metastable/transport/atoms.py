"""Exact transport to few atoms: n tokens against k <= 16 distinct points, at n = 1e6.

One atom: the mean cost. Two atoms y_1, y_2 with masses b_1, b_2: every plan sends mass b_1 to y_1, and sending token x
there instead of to y_2 changes the cost by delta(x) = c(x, y_1) - c(x, y_2); so the optimal plan takes the tokens with
the smallest delta until b_1 is filled and splits the token on the boundary (for antipodes +-e: the top b_1 mass in
<x, e>, for the chordal and for the geodesic metric alike). That is a selection, O(n), and no sort. More atoms:
`metastable.transport.semidiscrete`.

A measure counts by its DISTINCT points: rows that agree to 1e-12 in every coordinate are one atom, which moves the
distance by at most 1e-12 sqrt(d). So a push-forward onto a point pair is recognised although it has n rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
from jaxtyping import Float

from metastable.transport.distance import Distance
from metastable.transport.ground import paired_cost
from metastable.transport.pair import Pair, equal_masses

MAX_ATOMS = 2
MERGE_TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class AtomicTarget:
    """Tokens (x, a) on one side, k distinct atoms (y, b) on the other."""

    x: Float[np.ndarray, "n d"]
    a: Float[np.ndarray, "n"]
    y: Float[np.ndarray, "k d"]
    b: Float[np.ndarray, "k"]

    def distance(self, metric: str, p: float) -> Distance:
        """Exact W_p to the atoms."""
        if len(self.b) == 1:
            value = float(self.a @ paired_cost(self.x, self.y, metric, p))
        else:
            value = _two_atoms(self, metric, p)
        return Distance(max(value, 0.0) ** (1 / p), method="atoms", exact=True, metric=metric, p=p)


def few_atoms(pair: Pair, limit: int = MAX_ATOMS) -> AtomicTarget | None:
    """The problem as tokens against few atoms when one side has at most `limit` distinct points, else None."""
    target = distinct_atoms(pair.y, pair.b, limit)
    source = distinct_atoms(pair.x, pair.a, limit if target is None else len(target[1]) - 1)
    if source is not None:
        return AtomicTarget(pair.y, pair.b, *source)
    return None if target is None else AtomicTarget(pair.x, pair.a, *target)


def distinct_atoms(
    points: Float[np.ndarray, "n d"], mass: Float[np.ndarray, "n"], limit: int = MAX_ATOMS
) -> tuple[np.ndarray, np.ndarray] | None:
    """Distinct rows and their masses, or None as soon as more than `limit` are met (so a generic measure costs nothing)."""
    if limit < 1:
        return None
    first, weight = _scan(points, mass, limit, MERGE_TOLERANCE)
    return None if len(first) > limit else (points[first], weight / weight.sum())


@numba.njit(cache=True, nogil=True)
def _scan(points: np.ndarray, mass: np.ndarray, limit: int, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    n, d = points.shape
    first = np.empty(limit + 1, np.int64)
    weight = np.zeros(limit + 1)
    lost = np.zeros(limit + 1)  # Kahan compensation: a million masses keep their last digits
    count = 0
    for i in range(n):
        atom = count
        for k in range(count):
            same = True
            for c in range(d):
                if abs(points[i, c] - points[first[k], c]) > tolerance:
                    same = False
                    break
            if same:
                atom = k
                break
        if atom == count:
            first[count] = i
            count += 1
            if count > limit:
                break
        term = mass[i] - lost[atom]
        total = weight[atom] + term
        lost[atom] = (total - weight[atom]) - term
        weight[atom] = total
    return first[:count], weight[:count]


def _two_atoms(problem: AtomicTarget, metric: str, p: float) -> float:
    first = paired_cost(problem.x, problem.y[0], metric, p)
    second = paired_cost(problem.x, problem.y[1], metric, p)
    delta = first - second
    threshold = _mass_quantile(delta, problem.a, float(problem.b[0]))
    below = delta < threshold
    # Tokens at the threshold are interchangeable: together they fill what is left of atom 1.
    rest = problem.b[0] - problem.a @ below
    return float(problem.a @ np.where(below, first, second) + rest * threshold)


def _mass_quantile(values: np.ndarray, mass: np.ndarray, level: float) -> float:
    """A value t with mass{values < t} <= level <= mass{values <= t}."""
    n = len(values)
    if equal_masses(mass):
        index = min(n - 1, int(level * n + 1e-9))
        return float(np.partition(values, index)[index])
    order = np.argsort(values)
    index = min(n - 1, int(np.searchsorted(np.cumsum(mass[order]), level)))
    return float(values[order[index]])
