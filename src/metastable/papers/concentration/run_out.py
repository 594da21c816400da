"""When n tokens leave the mean field: the tail near E^perp runs out of tokens at (log n - O(1))/(k g_out)."""

from __future__ import annotations

import math

import numpy as np

from metastable import sphere
from metastable.drawing import Lines, shaded
from metastable.meanfield import Uniform, nodes
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.families import sheared
from metastable.papers.concentration.measuring import distances, run
from metastable.papers.concentration.sources import ESTIMATE
from metastable.papers.reading import farthest, first_crossing, slope, spanned
from metastable.theory import distance_to_limit, limit, spectrum
from metastable.weights import AttentionWeights

THEME = "From tokens to the mean field"
DEPARTED = 0.1
"""Share of the mean-field curve by which n tokens have departed from it."""
RUN_OUT_COUNTS, RUN_OUT_STEP = ((120, 310, 800), (200, 400, 800, 1600, 3200), (200, 400, 800)), (0.125, 0.0625)
"""Numbers of tokens, quick, full and small, and time step of the curves from which departures are
read, quick and full."""


def departure_time(times: np.ndarray, w2: np.ndarray, mean_field: np.ndarray) -> float:
    """First time at which W2 of n tokens is off the mean field by DEPARTED of it."""
    return first_crossing(times, np.abs(w2 / mean_field - 1), DEPARTED)


def circle_curves(
    counts: np.ndarray, times: np.ndarray, turns: int
) -> tuple[AttentionWeights, np.ndarray, list[list[np.ndarray]]]:
    """k = 1: G(0.5) at beta = 128 on the circle; W2 of graded nodes that stand for the mean field, and of n tokens.

    Which token leaves last depends on how the grid lies about the separatrix: it is turned by shares of its
    spacing.
    """
    w, beta = sheared(0.5), 128.0
    many = nodes(Uniform(2), 2, 1200, kind="graded", axis=[1.0, 0.0], depth=float(times[-1]) + 3)
    exact = distances(run(w, beta, many, times, rtol=1e-5), limit(w, many))
    found = []
    for n in counts:
        grids = [sphere.from_angles(2 * np.pi * (np.arange(n) + (j + 0.5) / turns) / n) for j in range(turns)]
        found.append([distances(run(w, beta, x, times, rtol=1e-5), limit(w, x)) for x in grids])
    return w, exact, found


def sphere_curves(
    counts: np.ndarray, times: np.ndarray, turns: int
) -> tuple[AttentionWeights, np.ndarray, list[list[np.ndarray]]]:
    """k = 2: M = diag(2, 2, 1), B = diag(1, 1, 2) on S^2 at zero temperature, where tokens are independent.

    The mean field by quadrature in u = 1 - z = e^{-y}: for an axisymmetric law one meridian will do.
    """
    w = AttentionWeights(V=np.diag([2.0, 2.0, 0.5]), B=np.diag([1.0, 1.0, 2.0]))
    y = np.linspace(0, 40, 2001)[1:]
    z = 1 - np.exp(-y)
    meridian = np.stack([np.sqrt(np.exp(-y) * (1 + z)), np.zeros_like(z), z], axis=1)
    exact = np.asarray(distance_to_limit(w, Measure(meridian, np.exp(-y) / np.exp(-y).sum()), times))
    return w, exact, [[np.asarray(distance_to_limit(w, sphere.fibonacci(int(n)), times))] for n in counts]


def run_out_experiment(setting: Setting) -> Outcome:
    """First departure of n tokens from the mean field against log n, dim E = 1 and 2."""
    curves: dict[str, np.ndarray] = {}
    counts = np.array(setting.choose(*RUN_OUT_COUNTS))
    spread = float(np.log(counts).std() * math.sqrt(len(counts)))
    rows, ratios, errors = [], [], []
    rivals: dict[str, list[float]] = {"g_in instead of g_out": [], "without the factor k": []}
    for k, of, end in ((1, circle_curves, 8.0), (2, sphere_curves, 12.0)):
        times = np.linspace(0, end, round(end / setting.choose(*RUN_OUT_STEP)) + 1)
        w, exact, found = of(counts, times, setting.choose(5, 8, small=10))
        s = spectrum(w)
        out = [np.array([departure_time(times, w2, exact) for w2 in of_n]) for of_n in found]
        measured = slope(np.log(counts), [one.mean() for one in out])
        scatter = [one.std(ddof=1) / math.sqrt(len(one)) if len(one) > 1 else 0.0 for one in out]
        errors.append(math.sqrt(np.mean(np.square(scatter))) / spread * k * s.g_out)
        ratios.append(measured * k * s.g_out)
        rivals["g_in instead of g_out"].append(measured * k * s.g_in)
        rivals["without the factor k"].append(measured * s.g_out)
        rows += [
            {"dim E": k, "n": int(n), "departs at": float(one.mean()), "standard error": float(error)}
            for n, one, error in zip(counts, out, scatter, strict=True)
        ]
        curves |= {f"t {k}": times, f"exact {k}": exact, "n": counts.astype(float)}
        curves |= {f"W2 {k} {n}": of_n[0] for n, of_n in zip(counts, found, strict=True)}
    return Outcome(
        farthest(ratios, 1.0),
        max(errors),
        rivals={name: (farthest(values, 1.0), max(errors)) for name, values in rivals.items()}
        | {"no dependence on n": (0.0, max(errors))},
        curves=curves,
        table=rows,
        note=f"slope times k g_out: {ratios[0]:.3f} for dim E = 1, {ratios[1]:.3f} for dim E = 2",
    )


def run_out_figure(outcome: Outcome) -> Lines:
    """W2 of n tokens over that of the mean field."""
    counts = outcome.curves["n"].astype(int)
    series = []
    for k, words, style in ((1, "circle, dim E = 1", "line"), (2, "S², dim E = 2", "dotted")):
        t, exact = outcome.curves[f"t {k}"], outcome.curves[f"exact {k}"]
        curves = [(t, outcome.curves[f"W2 {k} {n}"] / exact) for n in counts]
        series += shaded(curves, [f"{words}, n = {n}" for n in counts], style)
    return Lines(
        "n tokens leave the mean field", "time t", "W₂ of n tokens / W₂ of the mean field", series, log_y=True
    )


CLAIMS = (
    Claim(
        "tokens-run-out",
        lambda setting: (
            "n tokens follow the mean field up to t = (log n - O(1))/(k g_out), k = dim E; then the tail "
            "near E^perp is "
            f"empty. Departures of {DEPARTED:.0%} for k = 1 and 2, n {spanned(setting.choose(*RUN_OUT_COUNTS))}."
        ),
        run_out_experiment,
        expected=1.0,
        tolerance=0.25,
        reason="half of the way to the nearest rival; the next order, O(1), is the same for all n, and the "
        "time step is "
        "below a tenth of the range of log n",
        source=ESTIMATE,
        figure=run_out_figure,
        theme=THEME,
        unit="slope in log n * k g_out, farthest from 1",
        effort=6,
        rivals={
            "no dependence on n": "Enough tokens follow the mean field for ever.",
            "g_in instead of g_out": "The tail empties at the rate near E, not at that near the separatrix.",
            "without the factor k": "The dimension of E does not matter: t = log n/g_out.",
        },
    ),
)
