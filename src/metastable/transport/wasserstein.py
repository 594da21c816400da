"""`wasserstein(a, b)`: one door to all transport solvers; exact whenever that is possible."""

from __future__ import annotations

from typing import Any

from metastable.errors import InvalidInput
from metastable.transport.atoms import MAX_ATOMS, few_atoms
from metastable.transport.circle import circle
from metastable.transport.distance import Distance
from metastable.transport.exact import MAX_PAIRS, exact
from metastable.transport.ground import check_metric
from metastable.transport.line import line
from metastable.transport.pair import Pair, make_pair
from metastable.transport.sinkhorn import REGULARISATION, sinkhorn
from metastable.transport.sliced import PROJECTIONS, sliced

METHODS = ("auto", "atoms", "circle", "line", "exact", "sinkhorn", "sliced")


def wasserstein(
    a: Any,
    b: Any,
    p: float = 2,
    metric: str = "chordal",
    method: str = "auto",
    *,
    max_pairs: int = MAX_PAIRS,
    regularisation: float = REGULARISATION,
    projections: int = PROJECTIONS,
    seed: int = 0,
) -> Distance:
    """W_p(a, b) = ( min over couplings pi of E_pi d(x, y)^p )^{1/p}, d chordal |x-y| or geodesic angle(x, y).

    a, b: `Measure` or points (equal masses). The result is a float with `.method`, `.exact`, `.error`.

    method "auto" takes the first of these that applies, and says which one it took:
      atoms    one side has at most 16 distinct points: exact, n = 1e6 in milliseconds;
      circle   d = 2: exact in O(n log n), see `metastable.transport.circle`;
      line     Euclidean tokens with d = 1: exact by sorting;
      exact    at most `max_pairs` entries n*m (n = m = 5000): network simplex;
      otherwise it refuses and names the approximations, which are never taken unasked:
      sinkhorn the debiased entropic divergence at `regularisation`; sliced over `projections` drawn from `seed`;
      and `metastable.transport.bounds`, a rigorous lower and upper bound.
    For a law on a subsphere see `distance_to_subsphere`.

    >>> wasserstein([[1.0, 0.0]], [[0.0, 1.0]])
    1.414 (exact, atoms, chordal W2)
    """
    check_metric(metric, p)
    if method not in METHODS:
        raise InvalidInput(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    pair = make_pair(a, b, metric)
    if method == "auto":
        return _auto(pair, metric, p, max_pairs)
    if method == "atoms":
        found = few_atoms(pair)
        if found is None:
            raise InvalidInput(f"method 'atoms' needs a measure with at most {MAX_ATOMS} distinct points, got more")
        return found.distance(metric, p)
    if method == "circle":
        return circle(pair, metric, p, max_pairs=max_pairs)
    if method == "line":
        return line(pair, metric, p)
    if method == "sinkhorn":
        return sinkhorn(pair, metric, p, regularisation=regularisation, max_pairs=max_pairs)
    if method == "sliced":
        return sliced(pair, metric, p, projections=projections, seed=seed)
    return exact(pair, metric, p, max_pairs=max_pairs)


def _auto(pair: Pair, metric: str, p: float, max_pairs: int) -> Distance:
    found = few_atoms(pair)
    if found is not None:
        return found.distance(metric, p)
    if pair.d == 2 and pair.sphere:
        return circle(pair, metric, p, max_pairs=max_pairs)
    if pair.d == 1:
        return line(pair, metric, p)
    return exact(pair, metric, p, max_pairs=max_pairs)
