"""Exact optimal transport as a linear program: network simplex, or assignment when all masses are equal."""

from __future__ import annotations

from metastable.errors import InvalidInput
from metastable.transport.distance import Distance
from metastable.transport.ground import cost_matrix
from metastable.transport.pair import Pair
from metastable.transport.simplex import network_simplex

MAX_PAIRS = 25_000_000
"""Largest cost matrix n*m that is solved without being asked: n = m = 5000, 200 MB, about ten seconds."""


def exact(pair: Pair, metric: str, p: float, *, max_pairs: int = MAX_PAIRS) -> Distance:
    """W_p^p = min over couplings of sum_ij c_ij pi_ij, by POT's network simplex.

    Cost: memory 8 n m bytes (and as much again inside the solver), time about (n m)^{1.2}; refused beyond
    `max_pairs` entries, which the caller may raise.
    """
    if pair.pairs > max_pairs:
        circle = "method='circle' (bounds), " if pair.d == 2 and pair.sphere else ""
        raise InvalidInput(
            f"exact transport of {len(pair.a)} to {len(pair.b)} tokens needs {pair.pairs:.3g} cost entries, more "
            f"than max_pairs = {max_pairs:.3g}; raise it, or use {circle}'sinkhorn', 'sliced', transport.bounds"
        )
    value, _ = network_simplex(cost_matrix(pair.x, pair.y, metric, p), pair.a, pair.b)
    return Distance(max(value, 0.0) ** (1 / p), method="exact", exact=True, metric=metric, p=p)
