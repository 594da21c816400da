"""Claims about V = -I: tokens repel each other, the energy falls, and up to d + 1 of them form a simplex."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.perspective.sources import ESTIMATE
from metastable.papers.perspective.tokens import NAMES, attention, overlaps
from metastable.papers.reading import farthest
from metastable.papers.running import equiangular
from metastable.solve import Event, solve
from metastable.theory.equiangular import simplex_rates, travel_time

THEME = "Repulsion"
CASES = ((3, 2, 1.0), (3, 4, 2.0), (5, 4, 1.5), (4, 7, 3.0))
"""Number of tokens, dimension, beta: n <= d + 1."""


def slowest(n: int, d: int, beta: float, normalized: bool) -> float:
    """The least of the rates of the simplex: all overlaps change alike only for n <= d, rows to zero for n >= 4."""
    alike, sums, zero = simplex_rates(n, beta, normalized)
    return min([sums, *([alike] if n <= d else []), *([zero] if n >= 4 else [])])


def simplex_experiment(setting: Setting) -> Outcome:
    """Largest distance of an overlap from -1/(n-1) when random tokens have come to rest; energy on the way."""
    rows, error, orthogonal = [], [], []
    curves: dict[str, np.ndarray] = {}
    rises = 0
    for n, d, beta in setting.choose(CASES, (*CASES, (6, 5, 1.0), (12, 40, 1.0))):
        for normalized in (True, False):
            rate = slowest(n, d, beta, normalized)
            times = np.linspace(0.0, 16 / rate, 65)
            flow = attention(d, beta, normalized, v=-1.0)
            start = sphere.uniform(n, d, seed=setting.seeds(1, n, d)[0])
            path = solve(flow, start, float(times[-1]), times, rtol=1e-8, atol=1e-11)
            energy = np.array([flow.energy(x, path.mass) for x in path.points])
            rises += int((np.diff(energy) > 1e-9 * energy[0]).sum())
            gap = np.abs(overlaps(path.points).numpy() + 1 / (n - 1)).max(1)
            error.append(float(gap[-1]))
            orthogonal.append(float(overlaps(path.points[-1]).abs().max()))
            rows.append((n, d, beta, NAMES[normalized], error[-1], energy[0], energy[-1]))
            if normalized:
                curves[f"n = {n}, d = {d}, β = {beta:g}"] = np.stack([times, gap])
    names = ("n", "d", "beta", "flow", "error", "first energy", "last energy")
    return Outcome(
        max(error),
        curves=curves,
        table=as_rows(dict(zip(names, zip(*rows, strict=True), strict=True))),
        inconclusive=f"the energy rose in {rises} of the steps between frames" if rises else "",
        rivals={"orthogonal tokens": min(orthogonal)},
    )


def simplex_figure(outcome: Outcome) -> Lines:
    """Distance from the simplex over time."""
    series = [Series(times, np.maximum(gap, 1e-16), name) for name, (times, gap) in outcome.curves.items()]
    return Lines(
        "V = −I: random tokens on their way to the simplex, softmax",
        "time t",
        "largest |<x_i, x_j> + 1/(n−1)|",
        series,
        log_y=True,
        y_floor=1e-8,
    )


NEAR_CASES = ((3, 2, 1.0), (4, 7, 1.0), (5, 4, 2.0), (6, 6, 3.0))
"""Number of tokens, dimension, beta of the runs that begin near the simplex."""
KINDS = ("u_i + u_j", "rows sum to 0")
DISPLACED = 1e-4
"""How far the tokens are displaced from its corners: what is not linear in it is of this relative size."""


def changes(points: Float[Tensor, "n d"]) -> tuple[float, float]:
    """Sizes of two parts of <x_i, x_j> + 1/(n-1): u_i + u_j with sum u = 0, and rows that sum to zero.

    The third, in which all overlaps change alike, is |sum x|^2/(n (n-1)): of second order in a displacement.
    """
    n = len(points)
    change = (points @ points.T).numpy() + 1 / (n - 1)
    np.fill_diagonal(change, 0.0)
    alike = change.sum() / (n * (n - 1))
    u = (change.sum(1) - (n - 1) * alike) / (n - 2)
    rest = change - alike - u[:, None] - u
    np.fill_diagonal(rest, 0.0)
    return float(np.linalg.norm(u)), float(np.linalg.norm(rest))


def rate_experiment(setting: Setting) -> Outcome:
    """Rates at which two kinds of displacement from the simplex decay, over those of the formula."""
    generator = np.random.default_rng(setting.seed)
    rows, found, alike, other = [], [], [], []
    for n, d, beta in setting.choose(NEAR_CASES, (*NEAR_CASES, (8, 7, 3.0), (12, 40, 2.0))):
        corners = np.zeros((n, d))
        corners[:, : n - 1] = np.linalg.svd(np.eye(n) - 1 / n)[0][:, : n - 1] * math.sqrt(n / (n - 1))
        start = Measure(corners + DISPLACED * generator.normal(size=(n, d)))
        for normalized in (True, False):
            expected = simplex_rates(n, beta, normalized)
            t = 1 / expected[0]
            end = solve(attention(d, beta, normalized, v=-1.0), start, t, rtol=1e-12, atol=1e-14).end
            parts = zip(KINDS, expected[1:], changes(start.points), changes(end.points), strict=True)
            for kind, (name, rate, before, after) in enumerate(parts, 1):
                if kind == 1 or n >= 4:
                    measured = math.log(before / after) / t
                    found.append(measured / rate)
                    alike.append(measured / expected[0])
                    other.append(measured / simplex_rates(n, beta, not normalized)[kind])
                    rows.append((n, d, beta, NAMES[normalized], name, measured, rate))
    names = ("n", "d", "beta", "flow", "displacement", "rate", "expected")
    return Outcome(
        farthest(found, 1.0),
        table=as_rows(dict(zip(names, zip(*rows, strict=True), strict=True))),
        rivals={
            "all overlaps alike": farthest(alike, 1.0),
            "the other normalisation": min(other, key=lambda value: abs(value - 1)),
        },
    )


RATE_CASES = ((2, 1.0), (4, 0.0), (4, 2.0), (10, 1.0), (10, 4.0))
"""Number of tokens and beta of equiangular tokens that repel each other."""
START, NEAR = 0.5, 1e-3
"""The first overlap, and how close to -1/(n-1) tokens come at the end of the run."""


def reversal_experiment(setting: Setting) -> Outcome:
    """Time in which repelled equiangular tokens come from overlap 1/2 to near the simplex, over t(g) of V = I."""
    rows, found, forth, late = [], [], [], []
    for n, beta in setting.choose(RATE_CASES, (*RATE_CASES, (32, 2.0))):
        for normalized in (True, False):
            least = -1 / (n - 1)
            event = Event(lambda x, m: overlaps(x).max(), least + NEAR, -1, stop=True)
            flow = attention(n, beta, normalized, v=-1.0)
            longest = 60 / simplex_rates(n, beta, normalized)[0]
            path = solve(flow, equiangular(n, START), longest, rtol=1e-10, atol=1e-12, events=[event])
            exact = travel_time(START, n, beta, least + NEAR, normalized)
            found.append(path.events[0].time / exact)
            forth.append(path.events[0].time / travel_time(1 - NEAR, n, beta, START, normalized))
            late.append(path.events[0].time / travel_time(START, n, 0.0, least + NEAR, normalized))
            rows.append((n, beta, NAMES[normalized], path.events[0].time, exact))
    names = ("n", "beta", "flow", "time of the tokens", "t(g)")
    return Outcome(
        farthest(found, 1.0),
        table=as_rows(dict(zip(names, zip(*rows, strict=True), strict=True))),
        rivals={
            "as fast as consensus": farthest(forth, 1.0),
            "whatever beta": farthest(late, 1.0),
        },
    )


CLAIMS = (
    Claim(
        "repulsion-simplex",
        "For V = -I the energy falls and n <= d+1 random tokens end as a simplex, all overlaps -1/(n-1), "
        "under both "
        "flows (n = 3 to 5, d = 2 to 7, beta = 0.5 to 3).",
        simplex_experiment,
        expected=0.0,
        tolerance=1e-4,
        reason="16 times of the slowest rate of the linearised flow leave e^(-16) = 1e-7, times what the "
        "start makes of it",
        source=ESTIMATE,
        figure=simplex_figure,
        theme=THEME,
        unit="largest error of an overlap",
        rivals={"orthogonal tokens": "Tokens end as orthogonal ones."},
    ),
    Claim(
        "simplex-rates",
        "Displacements of overlaps from the simplex decay at (n-2+beta n/(n-1)) b n/(n-1) if they are "
        "u_i+u_j and at "
        "2 beta b n/(n-1) if their rows sum to zero, "
        "b = e^(-beta/(n-1))/Z (n = 3 to 6, beta = 1 to 3, both flows).",
        rate_experiment,
        expected=1.0,
        tolerance=0.005,
        reason="displacements of 1e-4 are linear up to 1e-4, times n and a few, over changes by a factor 1/e "
        "to 1/2",
        source=ESTIMATE,
        theme=THEME,
        unit="measured over expected rate",
        rivals={
            "all overlaps alike": "All displacements decay at the rate 2nb of equiangular tokens.",
            "the other normalisation": "Both flows have the same rates.",
        },
    ),
    Claim(
        "repulsion-reverses-time",
        "V = -I is V = I backwards: equiangular tokens come from overlap 1/2 to 0.001 from the simplex in the time "
        "t(g) that attraction takes for the way back (n = 2 to 10, beta = 0 to 4).",
        reversal_experiment,
        expected=1.0,
        tolerance=1e-6,
        reason="the run has a tolerance of 1e-10 per step, near the end of the way multiplied by a thousand",
        source=ESTIMATE,
        theme=THEME,
        unit="time of the tokens over t(g)",
        rivals={
            "as fast as consensus": "Repulsion takes as long as attraction does to come as close to consensus.",
            "whatever beta": "The time does not depend on beta.",
        },
    ),
)
