"""`wasserstein(a, b)`: one door to all transport solvers; exact whenever that is possible."""

from __future__ import annotations

from typing import Any, Literal, overload

from metastable.arguments import choice, integer, number
from metastable.errors import InvalidInput
from metastable.transport.atoms import MAX_ATOMS, few_atoms
from metastable.transport.circle import circle, exact_on_circle
from metastable.transport.distance import Bounds, Distance
from metastable.transport.exact import MAX_PAIRS, exact
from metastable.transport.ground import check_metric
from metastable.transport.line import line
from metastable.transport.pair import Pair, make_pair
from metastable.transport.sinkhorn import REGULARISATION, sinkhorn
from metastable.transport.sliced import PROJECTIONS, sliced

METHODS = ("auto", "atoms", "circle", "line", "exact", "sinkhorn", "sliced")


@overload
def wasserstein(
    a: Any,
    b: Any,
    p: float = 2,
    metric: str = "chordal",
    method: Literal["auto", "atoms", "line", "exact", "sinkhorn", "sliced"] = "auto",
    *,
    max_pairs: int = MAX_PAIRS,
    regularisation: float = REGULARISATION,
    projections: int = PROJECTIONS,
    seed: int = 0,
) -> Distance: ...


@overload
def wasserstein(
    a: Any,
    b: Any,
    p: float = 2,
    metric: str = "chordal",
    method: str = ...,
    *,
    max_pairs: int = MAX_PAIRS,
    regularisation: float = REGULARISATION,
    projections: int = PROJECTIONS,
    seed: int = 0,
) -> Distance | Bounds: ...


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
) -> Distance | Bounds:
    """W_p(a, b) = ( min over couplings pi of E_pi d(x, y)^p )^{1/p}, d chordal |x-y| or geodesic angle(x, y).

    a, b: `Measure` or points (equal masses); 1 <= p <= 10. The result is a float with `.method`, `.exact` and
    `.error`.

    method "auto" takes the first of these that applies, and says which one it took:
      atoms    one side has at most 16 distinct points: exact, n = 1e6 in milliseconds;
      circle   d = 2: exact in O(n log n) where a certificate proves it, see `metastable.transport.circle`;
      line     Euclidean tokens with d = 1: exact by sorting;
      exact    at most `max_pairs` entries n*m (n = m = 5000): network simplex;
      otherwise it refuses and names the approximations, which are never taken unasked:
      circle   by name, between large measures without a certificate: `Bounds`, which `float()` refuses;
      sinkhorn the debiased entropic divergence at `regularisation`; sliced over `projections` drawn from `seed`;
      and `metastable.transport.bounds`, a rigorous lower and upper bound.
    For a law on a subsphere see `distance_to_subsphere`.

    >>> wasserstein([[1.0, 0.0]], [[0.0, 1.0]])
    1.414 (exact, atoms, chordal W2)
    """
    p = check_metric(metric, p)
    choice(method, "method", METHODS)
    max_pairs = integer(max_pairs, "max_pairs", least=0)
    regularisation = number(regularisation, "regularisation", above=0)
    projections = integer(projections, "projections", least=2)
    seed = integer(seed, "seed", least=0)
    pair = make_pair(a, b, metric)
    found: Distance | Bounds
    if method == "auto":
        found = _auto(pair, metric, p, max_pairs)
    elif method == "atoms":
        found = _to_atoms(pair, metric, p)
    elif method == "circle":
        found = circle(pair, metric, p, max_pairs=max_pairs)
    elif method == "line":
        found = line(pair, metric, p)
    elif method == "sinkhorn":
        found = sinkhorn(pair, metric, p, regularisation=regularisation, max_pairs=max_pairs)
    elif method == "sliced":
        found = sliced(pair, metric, p, projections=projections, seed=seed)
    else:
        found = exact(pair, metric, p, max_pairs=max_pairs)
    return found if isinstance(found, Bounds) or pair.scale == 1 else found.times(pair.scale)


def _auto(pair: Pair, metric: str, p: float, max_pairs: int) -> Distance:
    found = few_atoms(pair)
    if found is not None:
        return found.distance(metric, p)
    if pair.d == 2 and pair.sphere:
        proven = exact_on_circle(pair, metric, p)
        return exact(pair, metric, p, max_pairs=max_pairs) if proven is None else proven
    if pair.d == 1:
        return line(pair, metric, p)
    return exact(pair, metric, p, max_pairs=max_pairs)


def _to_atoms(pair: Pair, metric: str, p: float) -> Distance:
    found = few_atoms(pair)
    if found is None:
        raise InvalidInput(f"method 'atoms' needs a measure with at most {MAX_ATOMS} distinct points, got more")
    return found.distance(metric, p)
