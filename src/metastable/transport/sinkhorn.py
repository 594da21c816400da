"""The Sinkhorn divergence: entropic transport without its bias."""

from __future__ import annotations

import math

import numba
import numpy as np

from metastable.errors import InvalidInput
from metastable.transport.distance import Distance
from metastable.transport.exact import MAX_PAIRS
from metastable.transport.ground import cost_matrix
from metastable.transport.pair import Pair
from metastable.transport.simplex import dual_value

REGULARISATION = 0.01
"""Default eps in units of the cost, which is at most 4 for chordal p = 2: lengths below 0.1 are blurred."""
LEAST_REGULARISATION = 1e-6
"""Smallest eps: below it the sweeps do not come near their limit, and the linear program is cheaper."""
TOLERANCE = 1e-6
"""Change of the potentials, in units of eps, at which the sweeps stop; the stated error holds wherever they do."""
EPSILON = float(np.finfo(np.float64).eps)
"""The rounding of a sum of masses that total one, per term."""
SWEEPS = 500
"""Most sweeps at the last two values of eps; at the larger ones, which only give a start, ten do."""


def sinkhorn(
    pair: Pair, metric: str, p: float, *, regularisation: float = REGULARISATION, max_pairs: int = MAX_PAIRS
) -> Distance:
    """S_eps = OT_eps(a, b) - OT_eps(a, a)/2 - OT_eps(b, b)/2, and S_eps^{1/p} as the distance, with

        OT_eps(a, b) = min over couplings pi of E_pi d^p + eps KL(pi | a x b).

    eps = `regularisation` is in units of the cost d(x, y)^p (chordal p = 2: at most 4). The divergence is >= 0,
    vanishes for equal measures and tends to W_p^p as eps -> 0 [Feydy et al., AISTATS 2019]. Solved in the log
    domain with eps halved from the largest cost down, converged or not: exact is False, and `error` is rigorous.
    The potentials, made feasible, bound W_p^p from below; the entropic plan, rounded to the right marginals
    [Altschuler, Weed, Rigollet, NeurIPS 2017], from above. A value outside of these bounds is
    moved to the nearer one.
    """
    if pair.scale != 1:  # the cost is in units of scale^p
        exponent = math.log2(regularisation) - p * math.log2(pair.scale)
        regularisation = 2.0 ** min(max(exponent, -1000.0), 1000.0)
    if not LEAST_REGULARISATION <= regularisation <= 1 / LEAST_REGULARISATION:
        raise InvalidInput(
            f"regularisation must be >= {LEAST_REGULARISATION:g} and <= {1 / LEAST_REGULARISATION:g} "
            f"for points of order one, got {regularisation:g}"
        )
    largest = max(len(pair.a), len(pair.b)) ** 2
    if largest > max_pairs:
        raise InvalidInput(
            f"the Sinkhorn divergence of {len(pair.a)} and {len(pair.b)} tokens needs {largest:.3g} cost entries, "
            f"more than max_pairs = {max_pairs:.3g}; raise it, or use 'sliced' or transport.bounds"
        )
    across = cost_matrix(pair.x, pair.y, metric, p)
    f, g = _potentials(across, pair.a, pair.b, regularisation)
    lower, upper = _enclosed(across, pair.a, pair.b, f, g, regularisation)
    divergence = float(pair.a @ f + pair.b @ g)
    for points, mass in ((pair.x, pair.a), (pair.y, pair.b)):
        f, g = _potentials(cost_matrix(points, points, metric, p), mass, mass, regularisation)
        divergence -= float(mass @ (f + g)) / 2
    value, low, high = (max(cost, 0.0) ** (1 / p) for cost in (divergence, lower, upper))
    value = min(max(value, low), high)
    return Distance(value, method="sinkhorn", exact=False, error=max(value - low, high - value), metric=metric, p=p)


def _potentials(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, regularisation: float
) -> tuple[np.ndarray, np.ndarray]:
    """Dual potentials (f, g) of OT_eps, eps halved from the largest cost down; then OT_eps = a f + b g."""
    log_a, log_b = np.log(a), np.log(b)
    transposed = np.ascontiguousarray(cost.T)
    halvings = max(1, math.ceil(math.log2(max(2.0, float(cost.max()) / regularisation))))
    f = np.zeros(len(a))
    g = np.zeros(len(b))
    for halving in range(halvings, -1, -1):
        eps = regularisation * 2.0**halving
        for _ in range(SWEEPS if halving <= 1 else 10):
            g = _softmin(transposed, f, log_a, eps)
            following = _softmin(cost, g, log_b, eps)
            f, change = following, float(np.abs(following - f).max())
            if change <= TOLERANCE * eps:
                break
    return f, g


def _enclosed(
    cost: np.ndarray, a: np.ndarray, b: np.ndarray, f: np.ndarray, g: np.ndarray, eps: float
) -> tuple[float, float]:
    """Rigorous (lower, upper) bounds of the optimal cost of transport from potentials of any quality."""
    feasible = (cost - (cost - g).min(axis=1)[:, None]).min(axis=0)
    lower = dual_value(cost, a, b, feasible)
    with np.errstate(over="ignore", under="ignore"):
        plan = np.exp(np.minimum((f[:, None] + g - cost) / eps + np.log(a)[:, None] + np.log(b), 0.0))
    plan *= _shrink(a, plan.sum(axis=1))[:, None]
    plan *= _shrink(b, plan.sum(axis=0))
    left, right = (np.maximum(m - plan.sum(axis=k), 0.0) for m, k in ((a, 1), (b, 0)))
    missing = max(float(left.sum()), float(right.sum()))
    rest = float(left @ cost @ right) / missing if missing > 0 else 0.0
    # Rounding: a unit of the total mass per token may be missing or counted twice, and travels at most so far.
    rounding = float(cost.max()) * (len(a) + len(b)) * EPSILON
    return lower - rounding, float((plan * cost).sum()) + rest + rounding


def _shrink(mass: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Factors <= 1 that bring sums above the masses down to them."""
    return np.where(there > mass, mass / np.where(there > mass, there, 1.0), 1.0)


@numba.njit(cache=True, nogil=True)
def _softmin(cost: np.ndarray, potential: np.ndarray, log_mass: np.ndarray, eps: float) -> np.ndarray:
    """-eps log sum_j m_j exp((potential_j - c_ij)/eps) for every row i."""
    n, m = cost.shape
    out = np.empty(n)
    for i in range(n):
        top = -math.inf
        for j in range(m):
            top = max(top, (potential[j] - cost[i, j]) / eps + log_mass[j])
        total = 0.0
        for j in range(m):
            total += math.exp((potential[j] - cost[i, j]) / eps + log_mass[j] - top)
        out[i] = -eps * (top + math.log(total))
    return out
