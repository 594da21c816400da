"""Transport against linear programs: masses over many decades, coincident points, both metrics, every method.

`CASES[name](seed)` builds one random pair of measures from the seed, compares, and returns None or one line that
says what is wrong. References: POT's network simplex with a duality gap computed here, and HiGHS where
the masses are above its own tolerance of 1e-7.
"""

from collections.abc import Callable

import numpy as np
import ot

from metastable.measure import Measure
from metastable.transport import Bounds, Distance, bounds, distance_to_subsphere, ground_cost, wasserstein

ROUNDING = 2e-12
"""Of the largest cost: what W_p^p of an exact method may be off by, where the reference itself is good to 1e-12."""
DECADES = (0, 0, 3, 6, 9, 12, 16, 30, 300)
"""The masses of a measure spread over this many decades."""


def random_measure(rng: np.random.Generator, n: int, d: int, sphere: bool = True) -> Measure:
    """Spread, clustered, antipodal or coincident tokens; masses over decades, or one token with nearly all."""
    points = rng.standard_normal((n, d))
    kind = rng.choice(["spread", "cluster", "arc", "antipodal", "coincident", "one", "grid"])
    if kind == "cluster":
        points = rng.standard_normal(d) + 10.0 ** rng.uniform(-12, 0) * points
    elif kind == "arc" and d > 1:
        angle = rng.uniform(0, rng.uniform(0.1, 6), n)
        points = np.zeros((n, d))
        points[:, 0], points[:, 1] = np.cos(angle), np.sin(angle)
    elif kind == "antipodal":
        points = rng.choice([-1.0, 1.0], n)[:, None] * points[0]
    elif kind == "coincident":
        points = points[rng.integers(0, max(1, n // 3), n)]
    elif kind == "one":
        points = np.tile(points[0], (n, 1))
    elif kind == "grid" and d == 2:
        angle = 2 * np.pi * rng.integers(0, 12, n) / 12
        points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    decades = float(rng.choice(DECADES))
    mass = 10.0 ** (-decades * rng.random(n))
    if rng.random() < 0.3:
        mass = np.full(n, 10.0**-decades)
        mass[rng.integers(n)] = 1.0
    mass /= mass.sum()
    return Measure(points, None if rng.random() < 0.25 else mass / mass.sum(), sphere=sphere)


def random_pair(rng: np.random.Generator, d: int, most: int, sphere: bool = True) -> tuple[Measure, Measure]:
    """Two measures; sometimes the second has points of the first, or is the first in another order."""
    n, m = (int(np.exp(rng.uniform(0, np.log(most)))) for _ in range(2))
    a, b = random_measure(rng, n, d, sphere), random_measure(rng, m, d, sphere)
    kind = rng.random()
    if kind < 0.15:
        b = Measure(a.points[rng.integers(0, n, m)], b.mass, sphere=sphere)
    elif kind < 0.25:
        order = rng.permutation(n)
        b = Measure(a.points[order], a.mass[order], sphere=sphere)
    return a, b


def reference(a: Measure, b: Measure, p: float, metric: str) -> tuple[float, float]:
    """(W_p^p, what an exact method may be off by): POT's plan, proven by its potentials."""
    x, mass_x = a.numpy()
    y, mass_y = b.numpy()
    keep_x, keep_y = mass_x > 0, mass_y > 0
    source, target = mass_x[keep_x] / mass_x.sum(), mass_y[keep_y] / mass_y.sum()
    cost = ground_cost(x[keep_x], y[keep_y], metric, p)
    most = max(float(cost.max()), 1e-300)
    plan, log = ot.emd(source, target, cost / most, log=True, numItermax=10_000_000)
    primal = float((plan * cost).sum())
    dual = float(source @ (cost - most * log["v"]).min(axis=1) + target @ log["v"] * most)
    assert abs(primal - dual) <= 1e-12 * most, f"the reference is not proven: {primal} and {dual}"
    # Points nearer than 1e-12 in every coordinate are one atom: a distance may be off by that times sqrt(d).
    return primal, ROUNDING * most + (primal ** (1 / p) + 4e-12) ** p - primal


def _asked(rng: np.random.Generator) -> tuple[float, str]:
    return float(rng.choice([1, 2])), str(rng.choice(["chordal", "geodesic"]))


def _compared(found: Distance | Bounds, a: Measure, b: Measure, p: float, metric: str) -> str | None:
    value, slack = reference(a, b, p, metric)
    who = f"n = {a.n}, m = {b.n}, d = {a.d}, p = {p:g}, {metric}"
    if isinstance(found, Bounds):
        inside = found.lower**p - slack <= value <= found.upper**p + slack
        return None if inside else f"{who}: W^p = {value!r} outside of [{found.lower**p!r}, {found.upper**p!r}]"
    if found.exact:
        right = abs(found**p - value) <= slack
        return None if right else f"{who}: {found.method} says W^p = {found**p!r}, it is {value!r}"
    low, high = max(found - found.error, 0.0) ** p - slack, (found + found.error) ** p + slack
    return None if low <= value <= high else f"{who}: W^p = {value!r} outside of {found!r}"


def exact_methods(seed: int) -> str | None:
    """The default method, in any dimension."""
    rng = np.random.default_rng([1, seed])
    a, b = random_pair(rng, int(rng.choice([2, 3, 7])), 60)
    p, metric = _asked(rng)
    return _compared(wasserstein(a, b, p, metric), a, b, p, metric)


def few_atoms(seed: int) -> str | None:
    """Against at most 16 atoms, which may coincide."""
    rng = np.random.default_rng([2, seed])
    d = int(rng.choice([2, 3, 7]))
    a, b = random_measure(rng, int(rng.integers(1, 200)), d), random_measure(rng, int(rng.integers(1, 17)), d)
    p, metric = _asked(rng)
    found = wasserstein(a, b, p, metric, method="atoms")
    return _compared(found, a, b, p, metric)


def circle(seed: int) -> str | None:
    """The solver of the circle by name, with the linear program forbidden half of the time."""
    rng = np.random.default_rng([3, seed])
    a, b = random_pair(rng, 2, 80)
    p, metric = _asked(rng)
    most = int(rng.choice([0, 10**6]))
    return _compared(wasserstein(a, b, p, metric, method="circle", max_pairs=most), a, b, p, metric)


def line(seed: int) -> str | None:
    """Euclidean tokens with d = 1."""
    rng = np.random.default_rng([4, seed])
    a, b = random_pair(rng, 1, 80, sphere=False)
    p, _ = _asked(rng)
    return _compared(wasserstein(a, b, p, method="line"), a, b, p, "chordal")


def enclosure(seed: int) -> str | None:
    """The cheap bounds."""
    rng = np.random.default_rng([5, seed])
    a, b = random_pair(rng, int(rng.choice([2, 3, 7])), 120)
    p, metric = _asked(rng)
    return _compared(bounds(a, b, p, metric, directions=4), a, b, p, metric)


def sinkhorn(seed: int) -> str | None:
    """The entropic distance and its stated error."""
    rng = np.random.default_rng([6, seed])
    a, b = random_pair(rng, int(rng.choice([2, 3, 7])), 25)
    p, metric = _asked(rng)
    found = wasserstein(a, b, p, metric, method="sinkhorn", regularisation=float(10 ** rng.uniform(-3, 0)))
    return _compared(found, a, b, p, metric)


def sliced(seed: int) -> str | None:
    """Lines never exceed W_p; on the circle slicing changes nothing."""
    rng = np.random.default_rng([7, seed])
    metric = str(rng.choice(["chordal", "geodesic"]))
    a, b = random_pair(rng, 2 if metric == "geodesic" else int(rng.choice([2, 3, 7])), 60)
    p = float(rng.choice([1, 2]))
    found = wasserstein(a, b, p, metric, method="sliced", projections=3, seed=seed)
    value, slack = reference(a, b, p, metric)
    right = abs(found**p - value) <= slack if metric == "geodesic" else found**p <= value + slack
    return None if right else f"n = {a.n}, m = {b.n}: sliced {found!r}, W^p = {value!r} ({metric}, p = {p:g})"


def subsphere(seed: int) -> str | None:
    """The distance to E is that to the nearest points, and below that to any law on E."""
    rng = np.random.default_rng([8, seed])
    d = int(rng.choice([2, 3, 7]))
    a = random_measure(rng, int(rng.integers(1, 60)), d)
    p, metric = _asked(rng)
    basis = rng.standard_normal((d, int(rng.integers(1, d))))
    other = random_measure(rng, int(rng.integers(1, 40)), basis.shape[1], sphere=False)
    law = Measure(other.points.numpy() @ basis.T, other.mass)
    found = distance_to_subsphere(a, basis, metric, p)
    value, slack = reference(a, law, p, metric)
    return None if found**p <= value + slack else f"{found!r} is above W^p = {value!r} to a law on E"


def highs(seed: int) -> str | None:
    """The default method against a general linear program, which knows nothing of transport."""
    from scipy.optimize import linprog

    rng = np.random.default_rng([9, seed])
    n, m, d = int(rng.integers(1, 12)), int(rng.integers(1, 12)), int(rng.choice([2, 3]))
    p, metric = _asked(rng)
    a, b = (Measure(rng.standard_normal((k, d)), 10 ** rng.uniform(-3, 0, k)) for k in (n, m))
    a, b = Measure(a.points, a.mass), Measure(b.points, b.mass)
    cost = ground_cost(a.points.numpy(), b.points.numpy(), metric, p)
    rows = np.vstack([np.kron(np.eye(n), np.ones(m)), np.kron(np.ones(n), np.eye(m))])
    solved = linprog(cost.ravel(), A_eq=rows[:-1], b_eq=np.concatenate([a.mass.numpy(), b.mass.numpy()])[:-1])
    found = wasserstein(a, b, p, metric)
    return None if abs(found**p - solved.fun) <= 1e-9 else f"{found!r}, HiGHS says W^p = {solved.fun!r}"


CASES: dict[str, Callable[[int], str | None]] = {
    "exact_methods": exact_methods,
    "few_atoms": few_atoms,
    "circle": circle,
    "line": line,
    "enclosure": enclosure,
    "sinkhorn": sinkhorn,
    "sliced": sliced,
    "subsphere": subsphere,
    "highs": highs,
}
