"""The Sinkhorn divergence: entropic transport without its bias."""

from __future__ import annotations

import math

import numba
import numpy as np

from metastable.errors import InvalidInput
from metastable.transport.distance import Distance
from metastable.transport.exact import MAX_PAIRS
from metastable.transport.ground import ground_cost
from metastable.transport.pair import Pair

REGULARISATION = 0.01
"""Default eps in units of the cost, which is at most 4 for chordal p = 2: lengths below 0.1 are blurred."""
TOLERANCE = 1e-6
"""Change of the potentials, in units of eps, at which the sweeps stop; what is left enters the stated error."""
SWEEPS = 500
"""Most sweeps at the last two values of eps; at the larger ones, which only give a start, ten do."""


def sinkhorn(
    pair: Pair, metric: str, p: float, *, regularisation: float = REGULARISATION, max_pairs: int = MAX_PAIRS
) -> Distance:
    """S_eps = OT_eps(a, b) - OT_eps(a, a)/2 - OT_eps(b, b)/2, and S_eps^{1/p} as the distance, with

        OT_eps(a, b) = min over couplings pi of E_pi d^p + eps KL(pi | a x b).

    eps = `regularisation` is in units of the cost d(x, y)^p (chordal p = 2: at most 4). The divergence is >= 0,
    vanishes for equal measures and tends to W_p^p as eps -> 0 [Feydy et al., AISTATS 2019]. Solved in the log
    domain with eps halved from the largest cost down; exact is False and `error` is an estimate:
    twice what the last halving of eps changed in the distance (the bias is O(eps) for p = 1 and smaller for
    p = 2), plus what the sweeps left open.
    """
    if not (math.isfinite(regularisation) and regularisation > 0):
        raise InvalidInput(f"regularisation must be finite and > 0, got {regularisation}")
    largest = max(len(pair.a), len(pair.b)) ** 2
    if largest > max_pairs:
        raise InvalidInput(
            f"the Sinkhorn divergence of {len(pair.a)} and {len(pair.b)} tokens needs {largest:.3g} cost entries, "
            f"more than max_pairs = {max_pairs:.3g}; use method='sliced', transport.bounds, or raise max_pairs"
        )
    across = _entropic(ground_cost(pair.x, pair.y, metric, p), pair.a, pair.b, regularisation)
    source = _entropic(ground_cost(pair.x, pair.x, metric, p), pair.a, pair.a, regularisation)
    target = _entropic(ground_cost(pair.y, pair.y, metric, p), pair.b, pair.b, regularisation)
    coarse, fine = (
        max(both - (first + second) / 2, 0.0) ** (1 / p)
        for both, first, second in zip(across[:2], source[:2], target[:2], strict=True)
    )
    unconverged = across[2] + (source[2] + target[2]) / 2
    error = 2 * abs(coarse - fine) + (fine**p + unconverged) ** (1 / p) - fine
    return Distance(fine, method="sinkhorn", exact=False, error=error, metric=metric, p=p)


def _entropic(cost: np.ndarray, a: np.ndarray, b: np.ndarray, regularisation: float) -> tuple[float, float, float]:
    """(OT_{2 eps}, OT_eps, how far the last sweep moved the potentials), eps halved from the largest cost down."""
    log_a, log_b = np.log(a), np.log(b)
    transposed = np.ascontiguousarray(cost.T)
    halvings = max(1, math.ceil(math.log2(max(2.0, float(cost.max()) / regularisation))))
    f = np.zeros(len(a))
    coarse = fine = change = 0.0
    for halving in range(halvings, -1, -1):
        eps = regularisation * 2.0**halving
        for _ in range(SWEEPS if halving <= 1 else 10):
            g = _softmin(transposed, f, log_a, eps)
            following = _softmin(cost, g, log_b, eps)
            f, change = following, float(np.abs(following - f).max())
            if change <= TOLERANCE * eps:
                break
        # After an update of f from g the dual value is a f + b g: the entropic term vanishes.
        coarse, fine = fine, float(a @ f + b @ g)
    return coarse, fine, change


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
