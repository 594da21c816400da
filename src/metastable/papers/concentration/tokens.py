"""Claims about n: how tokens and deterministic nodes converge to the mean field."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.meanfield import nodes, reference_skew
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.concentration.families import plain
from metastable.papers.concentration.measuring import run
from metastable.papers.concentration.sources import ESTIMATE
from metastable.papers.reading import SAMPLING, fine, slope, spanned

THEME = "From tokens to the mean field"
IID_COUNTS = (100, 280, 800), (100, 200, 400, 800, 1600)
"""Numbers of iid tokens in a quick and a full run."""
IID_SEEDS = 140, 300
"""Samples of each number."""
BETA, TIME = 16.0, 1.0
"""From n = 100 on the fluctuations are in their linear regime: sqrt(n) times the rms error no longer grows."""


def observable(rho0: Measure, rtol: float = 1e-9) -> float:
    """E[<x, e1>^2] at the final time: a smooth observable of the law."""
    path = run(plain(), BETA, rho0, [0.0, TIME], rtol)
    return float(path.points[1][:, 0] ** 2 @ path.mass)


def reference() -> float:
    """The same for the mean field, on nodes so many that the error is below rounding of the fit."""
    return observable(nodes(reference_skew(), 2, 1024, kind="equispaced"))


def iid_error(setting: Setting) -> float:
    """Standard error of the exponent: the rms of m Gaussian errors has relative standard error 1/sqrt(2m)."""
    counts = setting.choose(*IID_COUNTS)
    spread = float(np.log(counts).std()) * math.sqrt(len(counts))
    return 1 / math.sqrt(2 * setting.choose(*IID_SEEDS)) / spread


def iid_experiment(setting: Setting) -> Outcome:
    """rms error of iid tokens over seeds against n."""
    exact = reference()
    counts = np.array(setting.choose(*IID_COUNTS))
    seeds = setting.choose(*IID_SEEDS)
    errors = np.array([_iid_errors(int(n), setting.seeds(seeds, 1, i), exact) for i, n in enumerate(counts)])
    rms = np.sqrt((errors**2).mean(1))
    uncertainty = iid_error(setting)
    rows = as_rows({"n": counts, "rms error": rms})
    found = slope(np.log(counts), np.log(rms))
    level = math.exp(float(np.mean(np.log(rms) + 0.5 * np.log(counts))))
    drawn = fine(counts)
    return Outcome(
        found,
        uncertainty,
        # Errors of a rival, with the scatter of those that were seen, have its slope and this standard error.
        rivals={
            "n^(-1/4)": (-0.25, uncertainty),
            "n^(-1)": (-1.0, uncertainty),
            "no convergence": (0.0, uncertainty),
        },
        curves={"n": counts.astype(float), "rms": rms, "fine": drawn, "law": level / np.sqrt(drawn)},
        table=rows,
    )


def _iid_errors(n: int, seeds: Sequence[int], exact: float) -> np.ndarray:
    """Errors of n iid tokens for these seeds; the integrator's error, below 1e-6, is far below sampling."""
    law = reference_skew()
    return np.array([observable(Measure(law.sample(n, seed=k)), 1e-3) - exact for k in seeds])


def nodes_experiment(setting: Setting) -> Outcome:
    """Error of equispaced nodes with masses against n, where they resolve the kernel: the fitted order."""
    exact = reference()
    counts = np.array([32, 48, 64, 96, 128])
    errors = np.array(
        [abs(observable(nodes(reference_skew(), 2, int(n), kind="equispaced")) - exact) for n in counts]
    )
    usable = errors > 1e-9
    order = -slope(np.log(counts[usable]), np.log(errors[usable]))
    spread = [abs(observable(Measure(low_discrepancy(int(n)))) - exact) for n in counts]
    iid = np.sqrt([np.mean(_iid_errors(int(n), setting.seeds(20, 2, int(n)), exact) ** 2) for n in counts[[0, -1]]])
    rows = as_rows({"n": counts, "error": errors, "error of a low-discrepancy sequence": spread})
    return Outcome(
        order,
        rivals={
            "Monte Carlo": -slope(np.log(counts[[0, -1]]), np.log(iid)),
            "low discrepancy": -slope(np.log(counts), np.log(spread)),
        },
        curves={"n": counts.astype(float), "error": np.maximum(errors, 1e-16), "sequence": np.array(spread)},
        table=rows,
    )


def low_discrepancy(n: int) -> torch.Tensor:
    """Equal masses at the quantiles j (sqrt(5)-1)/2 mod 1 of the reference law: error of order 1/n."""
    law = reference_skew()
    u = np.arange(1, n + 1) * (math.sqrt(5) - 1) / 2 % 1.0
    dense = nodes(law, 2, 20_000, kind="equispaced")
    angle = np.unwrap(sphere.angles(dense.points).numpy())
    below = np.cumsum(dense.mass.numpy()) - dense.mass.numpy() / 2
    return sphere.from_angles(np.interp(u, below, angle))


def tokens_saved_experiment(setting: Setting) -> Outcome:
    """Iid tokens needed for an error of 1e-4, by their n^{-1/2} law, over nodes needed for the same."""
    exact, target = reference(), 1e-4
    law, n0 = reference_skew(), 200
    seeds = setting.choose(40, 160)
    iid = _iid_errors(n0, setting.seeds(seeds, 3), exact)
    mean = float((iid**2).mean())
    error = float((iid**2).std(ddof=1)) / math.sqrt(seeds) / mean
    needed = n0 * mean / target**2
    enough = next(
        n for n in range(8, 257, 4) if abs(observable(nodes(law, 2, n, kind="equispaced")) - exact) < target
    )
    like_1_over_n = n0 * math.sqrt(mean) / target / enough
    rows = [{"error": target, "iid tokens": round(needed), "nodes": enough}]
    return Outcome(
        needed / enough,
        uncertainty=needed / enough * error,
        rivals={"error like 1/n": (like_1_over_n, like_1_over_n * error / 2), "nothing saved": 1.0},
        table=rows,
    )


def convergence_figure(outcome: Outcome) -> Lines:
    """Error against n."""
    n = outcome.curves["n"]
    if "rms" in outcome.curves:
        series = [
            Series(n, outcome.curves["rms"], "iid tokens", "points", colour=0),
            Series(outcome.curves["fine"], outcome.curves["law"], "n^(−1/2)", "dashed", colour=0),
        ]
    else:
        series = [
            Series(n, outcome.curves["error"], "nodes with masses", "marked"),
            Series(n, outcome.curves["sequence"], "low-discrepancy sequence", "marked"),
        ]
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
        lambda setting: (
            f"n iid tokens converge to the mean field like n^(-1/2) (n {spanned(setting.choose(*IID_COUNTS))})."
        ),
        iid_experiment,
        expected=-0.5,
        tolerance=lambda setting: SAMPLING * iid_error(setting),
        reason=lambda setting: (
            f"{SAMPLING:g} standard errors of the exponent from {setting.choose(*IID_SEEDS)} samples of each n; "
            f"the next order, 1/n, is below {1 / IID_COUNTS[0][0]:g}"
        ),
        source=ESTIMATE,
        figure=convergence_figure,
        theme=THEME,
        unit="exponent of n",
        effort=10,
        rivals={
            "n^(-1/4)": "The rate is that of W2 between a law and its sample in low dimension.",
            "n^(-1)": "The rate is that of a low-discrepancy sequence.",
            "no convergence": "Tokens keep a distance from the mean field.",
        },
    ),
    Claim(
        "nodes-convergence",
        "Deterministic nodes with masses converge faster than any fixed power; at least like n^{-4} for n "
        "from 32 to 128.",
        nodes_experiment,
        expected=4.0,
        tolerance=0.0,
        reason="no low-order rule reaches it; the trapezoidal rule is spectrally accurate for smooth laws",
        source=ESTIMATE,
        figure=convergence_figure,
        relation="at least",
        theme=THEME,
        unit="order in n",
        rivals={
            "Monte Carlo": "Nodes are no better than iid tokens, order 1/2.",
            "low discrepancy": "Nodes are as good as equal masses on a low-discrepancy sequence, order 1.",
        },
    ),
    Claim(
        "tokens-saved",
        "Reaching an error of 1e-4 takes at least ten thousand times fewer nodes than iid tokens.",
        tokens_saved_experiment,
        expected=1e4,
        tolerance=0.0,
        reason="a lower bound with an order of magnitude to spare",
        source=ESTIMATE,
        relation="at least",
        theme=THEME,
        unit="iid tokens / nodes",
        effort=3,
        rivals={
            "error like 1/n": "Tokens whose error falls like 1/n would need as many.",
            "nothing saved": "Nodes are no better than tokens.",
        },
    ),
)
