"""Exact optimal transport as a linear program: network simplex, or assignment when all masses are equal."""

from __future__ import annotations

import warnings

import numpy as np

from metastable.errors import InvalidInput, SolveError
from metastable.transport.distance import Distance
from metastable.transport.ground import ground_cost
from metastable.transport.pair import Pair

MAX_PAIRS = 25_000_000
"""Largest cost matrix n*m that is solved without being asked: n = m = 5000, 200 MB, about ten seconds."""


def exact(pair: Pair, metric: str, p: float, *, max_pairs: int = MAX_PAIRS) -> Distance:
    """W_p^p = min over couplings of sum_ij c_ij pi_ij, by POT's network simplex.

    Cost: memory 8 n m bytes (and as much again inside the solver), time about (n m)^{1.2}; refused beyond
    `max_pairs` entries, which the caller may raise.
    """
    if pair.pairs > max_pairs:
        raise InvalidInput(
            f"exact transport between {len(pair.a)} and {len(pair.b)} tokens needs {pair.pairs:.3g} cost entries, "
            f"more than max_pairs = {max_pairs:.3g}; use method='sinkhorn' or 'sliced', transport.bounds, or raise "
            "max_pairs"
        )
    value = transport_cost(pair, ground_cost(pair.x, pair.y, metric, p))
    return Distance(max(value, 0.0) ** (1 / p), method="exact", exact=True, metric=metric, p=p)


def transport_cost(pair: Pair, cost: np.ndarray) -> float:
    """Optimal value of the transport program with this cost matrix.

    Tokens in geometric order (sorted along the circle, say) make the network simplex 5 to 100 times slower than the
    same tokens shuffled: its pivots then build long thin trees. So they are shuffled, with a fixed seed.
    """
    import ot  # a second to import, and most distances need no linear program

    generator = np.random.default_rng(0)
    rows, columns = generator.permutation(len(pair.a)), generator.permutation(len(pair.b))
    cost = cost[rows[:, None], columns]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what POT warns of is read from its log
        value, log = ot.emd2(
            pair.a[rows], pair.b[columns], cost, numItermax=max(1_000_000, 20 * pair.pairs), log=True
        )
    if log.get("warning") is not None:
        raise SolveError(f"the network simplex did not reach the optimum: {log['warning']}")
    return float(value)
