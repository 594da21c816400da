"""The network simplex for any cost matrix, with a certificate: a primal and a dual value that meet.

Weak duality: for any numbers v_j, sum_i a_i min_j (c_ij - v_j) + sum_j b_j v_j <= sum_ij c_ij pi_ij for every plan
pi with row sums a and column sums b. So a plan and a v whose values agree prove each other optimal, whatever
computed them and however unequal the masses are.
"""

from __future__ import annotations

import warnings

import numpy as np
from jaxtyping import Float

from metastable.errors import SolveError

CERTIFIED_GAP = 1e-11
"""Largest gap between the primal and the dual value, relative to the largest cost, that counts as proof."""


def certified(primal: float, dual: float, cost: Float[np.ndarray, "n m"]) -> bool:
    """Whether the two values meet to rounding."""
    return bool(abs(primal - dual) <= CERTIFIED_GAP * float(cost.max()))


def network_simplex(
    cost: Float[np.ndarray, "n m"], a: Float[np.ndarray, "n"], b: Float[np.ndarray, "m"]
) -> tuple[float, Float[np.ndarray, "m"]]:
    """(optimal cost, optimal dual weights v of the columns), by POT; raises when primal and dual do not meet.

    Tokens in geometric order (sorted along the circle, say) make the network simplex 5 to 100 times slower than the
    same tokens shuffled: its pivots then build long thin trees. So they are shuffled, with a fixed seed. POT
    compares costs with an absolute tolerance, so they are scaled to at most one.

    >>> network_simplex(np.array([[0.0, 1.0], [0.0, 3.0]]), np.array([0.5, 0.5]), np.array([0.5, 0.5]))[0]
    0.5
    """
    import ot  # a second to import, and most distances need no linear program

    generator = np.random.default_rng(0)
    rows, columns = generator.permutation(len(a)), generator.permutation(len(b))
    most = float(cost.max())
    if most == 0:
        return 0.0, np.zeros(len(b))
    shuffled = cost[rows[:, None], columns] / most
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what POT warns of is read from its log
        most_pivots = max(1_000_000, 20 * cost.size)
        # Whoever calls has balanced the masses: the check would take a tenth of the time of a hundred tokens.
        value, log = ot.emd2(a[rows], b[columns], shuffled, numItermax=most_pivots, log=True, check_marginals=False)
    if log.get("warning") is not None:
        raise SolveError(f"the network simplex did not reach the optimum: {log['warning']}")
    weights = np.empty(len(b))
    weights[columns] = log["v"] * most
    primal, dual = float(value) * most, dual_value(cost, a, b, weights)
    if not certified(primal, dual, cost):
        raise SolveError(f"the network simplex is not certified: primal {primal!r}, dual {dual!r}")
    return primal, weights


def dual_value(
    cost: Float[np.ndarray, "n m"],
    a: Float[np.ndarray, "n"],
    b: Float[np.ndarray, "m"],
    weights: Float[np.ndarray, "m"],
) -> float:
    """sum_i a_i min_j (c_ij - v_j) + sum_j b_j v_j, a lower bound of the optimal cost for any v."""
    least = np.empty(len(a))
    for start in range(0, len(a), 256):  # in blocks: no second matrix
        least[start : start + 256] = (cost[start : start + 256] - weights).min(axis=1)
    return float(a @ least + b @ weights)
