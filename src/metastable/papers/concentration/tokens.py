"""Claims about n: how tokens and deterministic nodes converge to the mean field."""

from __future__ import annotations

import math

import numpy as np

from metastable.drawing import Lines, Series
from metastable.meanfield import nodes, reference_skew
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.concentration.families import plain
from metastable.papers.concentration.measuring import run, slope
from metastable.papers.concentration.sources import ESTIMATE

THEME = "From tokens to the mean field"
BETA, TIME = 16.0, 1.0
"""From n = 100 on the fluctuations are in their linear regime: sqrt(n) times the rms error no longer grows."""


def observable(rho0: Measure, rtol: float = 1e-9) -> float:
    """E[<x, e1>^2] at the final time: a smooth observable of the law."""
    path = run(plain(), BETA, rho0, [0.0, TIME], rtol)
    return float(path.points[1][:, 0] ** 2 @ path.mass)


def reference() -> float:
    """The same for the mean field, on nodes so many that the error is below rounding of the fit."""
    return observable(nodes(reference_skew(), 2, 1024, kind="equispaced"))


def iid_experiment(setting: Setting) -> Outcome:
    """rms error of iid tokens over seeds against n."""
    exact = reference()
    counts = np.array(setting.choose((100, 200, 400, 800), (200, 400, 800, 1600, 3200)))
    seeds = setting.choose(60, 100)
    errors = np.array([_iid_errors(int(n), seeds, setting.seed + 1000 * i, exact) for i, n in enumerate(counts)])
    rms = np.sqrt((errors**2).mean(1))
    # rms of m Gaussian errors has relative standard error 1/sqrt(2m); propagated to the slope.
    spread = np.log(counts).std() * math.sqrt(len(counts))
    uncertainty = 1 / math.sqrt(2 * seeds) / float(spread)
    rows = as_rows({"n": counts, "rms error": rms})
    return Outcome(
        slope(np.log(counts), np.log(rms)), uncertainty, curves={"n": counts.astype(float), "rms": rms}, table=rows
    )


def _iid_errors(n: int, seeds: int, first: int, exact: float) -> np.ndarray:
    """Errors of n iid tokens for so many seeds; the integrator's 1e-6 is far below sampling."""
    law = reference_skew()
    return np.array([observable(Measure(law.sample(n, seed=first + k)), 1e-5) - exact for k in range(seeds)])


def nodes_experiment(setting: Setting) -> Outcome:
    """Error of equispaced nodes with masses against n, where they resolve the kernel: the fitted order."""
    exact = reference()
    counts = np.array([32, 48, 64, 96, 128])
    errors = np.array(
        [abs(observable(nodes(reference_skew(), 2, int(n), kind="equispaced")) - exact) for n in counts]
    )
    usable = errors > 1e-9
    order = -slope(np.log(counts[usable]), np.log(errors[usable]))
    rows = as_rows({"n": counts, "error": errors})
    return Outcome(order, curves={"n": counts.astype(float), "error": np.maximum(errors, 1e-16)}, table=rows)


def tokens_saved_experiment(setting: Setting) -> Outcome:
    """Iid tokens needed for an error of 1e-4, by their n^{-1/2} law, over nodes needed for the same."""
    exact, target = reference(), 1e-4
    law, n0 = reference_skew(), 200
    seeds = setting.choose(40, 160)
    iid = _iid_errors(n0, seeds, setting.seed + 50000, exact)
    needed = n0 * float((iid**2).mean()) / target**2
    enough = next(
        n for n in range(8, 257, 4) if abs(observable(nodes(law, 2, n, kind="equispaced")) - exact) < target
    )
    rows = [{"error": target, "iid tokens": round(needed), "nodes": enough}]
    return Outcome(needed / enough, uncertainty=needed / enough * math.sqrt(2 / seeds), table=rows)


def convergence_figure(outcome: Outcome) -> Lines:
    """Error against n."""
    n = outcome.curves["n"]
    iid = "rms" in outcome.curves
    error = outcome.curves["rms" if iid else "error"]
    series = [Series(n, error, "iid tokens" if iid else "nodes with masses", "points")]
    if iid:
        series.append(Series(n, error[0] * np.sqrt(n[0] / n), "n^(−1/2)", "dashed"))
    return Lines(
        "Convergence to the mean field, β = 16, t = 1",
        "number of tokens n",
        "error of E⟨x, e₁⟩²",
        series,
        log_x=True,
        log_y=True,
    )


CLAIMS = (
    Claim(
        "iid-convergence",
        "n iid tokens converge to the mean field like n^{-1/2}.",
        iid_experiment,
        expected=-0.5,
        tolerance=0.1,
        reason="three standard errors of the slope that a full run fits, not quite two of a quick run",
        source=ESTIMATE,
        figure=convergence_figure,
        theme=THEME,
        unit="exponent of n",
        effort=6,
    ),
    Claim(
        "nodes-convergence",
        "Deterministic nodes with masses converge faster than any fixed power; at least like n^{-4} here.",
        nodes_experiment,
        expected=4.0,
        tolerance=0.0,
        reason="no low-order rule reaches it; the trapezoidal rule is spectrally accurate for smooth laws",
        source=ESTIMATE,
        figure=convergence_figure,
        relation="at least",
        theme=THEME,
        unit="order in n",
    ),
    Claim(
        "tokens-saved",
        "Reaching an error of 1e-4 takes at least 100 times fewer nodes than iid tokens.",
        tokens_saved_experiment,
        expected=100.0,
        tolerance=0.0,
        reason="a lower bound with orders of magnitude to spare",
        source=ESTIMATE,
        relation="at least",
        theme=THEME,
        unit="iid tokens / nodes",
        effort=3,
    ),
)
