"""Exact transport to few atoms: n tokens against k <= 16 distinct points, at n = 1e6.

One atom: the mean cost. Two atoms y_1, y_2 with masses b_1, b_2: every plan sends mass b_1 to y_1, and sending
token x there instead of to y_2 changes the cost by delta(x) = c(x, y_1) - c(x, y_2); so the optimal plan takes
the tokens with the smallest delta until b_1 is filled and splits the token on the boundary (for antipodes +-e:
the top b_1 mass in <x, e>, for the chordal and for the geodesic metric alike). That is a selection, O(n), and
no sort. More atoms: `metastable.transport.semidiscrete`.

A measure counts by its DISTINCT points: rows that agree to 1e-12 in every coordinate are one atom, which moves the
distance by at most 1e-12 sqrt(d). So a push-forward onto a point pair is recognised although it has n rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
from jaxtyping import Float

from metastable.transport.distance import Distance
from metastable.transport.ground import cost_matrix, paired_cost
from metastable.transport.pair import Pair
from metastable.transport.semidiscrete import semidiscrete_cost

MAX_ATOMS = 16
"""Most distinct points that count as few: the graph of the augmenting paths has k^2 arcs,
each a heap of tokens."""
MERGE_TOLERANCE = 1e-12
"""Points nearer than this are one atom: a push-forward computes the same point n times, with different rounding."""
MASS_ROUNDING = 4e-15
"""What the compensated sum of n masses may be off by: a rest of mass below it is none."""
BINS = 4096
"""Bins of the histogram that selects the boundary between two atoms: one pass and they fit the first cache."""


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
        elif len(self.b) == 2:
            value = _two_atoms(self, metric, p)
        else:
            value, _ = semidiscrete_cost(cost_matrix(self.x, self.y, metric, p), self.a, self.b)
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
    """Distinct rows and their masses, or None as soon as more than `limit` are met."""
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
    first, second = (_costs_to(problem.x, atom, metric, p) for atom in problem.y)
    threshold = _threshold(first, second, problem.a, float(problem.b[0]))
    value, rest, tied, tied_first, tied_second = _filled(first, second, problem.a, float(problem.b[0]), threshold)
    # Tokens at the threshold are interchangeable and share what is left of atom 1. A share below the rounding of
    # the masses is none at all: counting it would put a floor of 1e-8 under W2.
    share = min(max(rest / tied, 0.0), 1.0) if tied > 0 else 0.0
    share = 0.0 if abs(rest) <= MASS_ROUNDING else 1.0 if abs(rest - tied) <= MASS_ROUNDING else share
    return value + share * tied_first + (1 - share) * tied_second


def _costs_to(x: np.ndarray, atom: np.ndarray, metric: str, p: float) -> np.ndarray:
    """d(x_i, atom)^p of every token."""
    apart = _squared_distance(x, atom)
    if metric == "chordal":
        return apart if p == 2 else apart ** (p / 2)
    angle = 2 * np.arctan2(np.sqrt(apart), np.sqrt(_squared_distance(x, -atom)))
    return angle * angle if p == 2 else angle**p


@numba.njit(cache=True, nogil=True)
def _squared_distance(x: np.ndarray, atom: np.ndarray) -> np.ndarray:
    out = np.empty(len(x))
    for i in range(len(x)):
        square = 0.0
        for c in range(len(atom)):
            square += (x[i, c] - atom[c]) ** 2
        out[i] = square
    return out


@numba.njit(cache=True, nogil=True)
def _threshold(first: np.ndarray, second: np.ndarray, mass: np.ndarray, level: float) -> float:
    """A value t of delta = first - second with mass{delta < t} <= level <= mass{delta <= t}.

    Selection by histograms: the bin in which the cumulative mass passes the level is histogrammed again until it is
    small enough to sort. O(n), whatever the masses.
    """
    low, high = math.inf, -math.inf
    for i in range(len(first)):
        delta = first[i] - second[i]
        low, high = min(low, delta), max(high, delta)
    if not high > low:
        return low
    scale = (BINS - 1) / (high - low)
    weight = np.zeros(BINS)
    for i in range(len(first)):
        weight[int((first[i] - second[i] - low) * scale)] += mass[i]
    critical, below = _passing_bin(weight, 0.0, level)
    values = np.empty(len(first))
    masses = np.empty(len(first))
    count = 0
    for i in range(len(first)):
        delta = first[i] - second[i]
        if int((delta - low) * scale) == critical:
            values[count], masses[count] = delta, mass[i]
            count += 1
    while count > BINS:
        low, high = values[:count].min(), values[:count].max()
        scale = (BINS - 1) / (high - low) if high > low else math.inf
        if not math.isfinite(scale):
            return low
        weight[:] = 0.0
        for i in range(count):
            weight[int((values[i] - low) * scale)] += masses[i]
        critical, below = _passing_bin(weight, below, level)
        kept = 0
        for i in range(count):
            if int((values[i] - low) * scale) == critical:
                values[kept], masses[kept] = values[i], masses[i]
                kept += 1
        count = kept
    order = np.argsort(values[:count])
    for i in order:
        below += masses[i]
        if below >= level:
            return values[i]
    return values[order[-1]]


@numba.njit(cache=True)
def _passing_bin(weight: np.ndarray, below: float, level: float) -> tuple[int, float]:
    """The bin in which the mass, counted from `below`, reaches `level` (or the last used), and the mass below."""
    last = 0
    before = below
    for k in range(len(weight)):
        if weight[k] > 0.0:
            last, before = k, below
            if below + weight[k] >= level:
                break
            below += weight[k]
    return last, before


@numba.njit(cache=True, nogil=True)
def _filled(
    first: np.ndarray, second: np.ndarray, mass: np.ndarray, level: float, threshold: float
) -> tuple[float, float, float, float, float]:
    """Tokens with delta < threshold to atom 1, with delta > threshold to atom 2.

    Returns the cost, how much of `level` is still free, and of the tokens at the threshold the mass and the cost of
    sending them all to atom 1, all to atom 2.
    """
    value = 0.0
    taken = 0.0
    tied = 0.0
    tied_first = 0.0
    tied_second = 0.0
    for start in range(0, len(mass), 1024):  # block sums: the rounding error does not grow with n
        block_value = 0.0
        block_taken = 0.0
        block_tied = 0.0
        for i in range(start, min(start + 1024, len(mass))):
            delta = first[i] - second[i]
            block_value += mass[i] * (first[i] if delta < threshold else second[i] if delta > threshold else 0.0)
            block_taken += mass[i] if delta < threshold else 0.0
            if delta == threshold:
                block_tied += mass[i]
                tied_first += mass[i] * first[i]
                tied_second += mass[i] * second[i]
        value += block_value
        taken += block_taken
        tied += block_tied
    return value, level - taken, tied, tied_first, tied_second
