"""Claims about the rate of W2 at zero temperature: half the gap, or all of it, and what B does to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from metastable import meanfield
from metastable.drawing import Lines, Series
from metastable.meanfield import Uniform
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.families import commuting, plain, sheared
from metastable.papers.concentration.sources import ESTIMATE
from metastable.papers.concentration.zero_temperature import THEME, subsphere_nodes, two_level
from metastable.papers.reading import farthest, slope
from metastable.theory import distance_to_limit, spectrum

WINDOW = (6.0, 12.0)
"""c t between which a rate is fitted: after six e-foldings the faster of the two decays is below a percent."""


def rate_experiment(setting: Setting) -> Outcome:
    """Exponent of W2 for densities that are positive on E^perp, dim E = 1, on a late window."""
    rows: list[dict[str, Any]] = []
    curves: dict[str, np.ndarray] = {}
    for name, w in (("I", plain()), ("G(0.5)", sheared(0.5)), ("G(1)", sheared(1.0)), ("C", commuting())):
        s = spectrum(w)
        c = min(s.g_in, s.g_out / 2)
        times = np.linspace(0, WINDOW[1] / c, setting.choose(61, 121, 31))
        rho0 = meanfield.nodes(Uniform(2), 2, 4000, kind="graded", axis=[1.0, 0.0], depth=s.g_out * times[-1] + 8)
        w2 = np.asarray(distance_to_limit(w, rho0, times))
        late = times * c >= WINDOW[0]
        measured = -slope(times[late], np.log(w2[late]))
        rows.append(
            {
                "weights": name,
                "measured rate": measured,
                "c": c,
                "near E, g_in": s.g_in,
                "half the gap": s.gap / 2,
            }
        )
        curves |= {f"t {name}": times * c, f"w {name}": w2}
    ratios = {
        key: [row["measured rate"] / row[key] for row in rows] for key in ("c", "near E, g_in", "half the gap")
    }
    return Outcome(
        farthest(ratios["c"], 1.0),
        curves=curves,
        table=rows,
        rivals={
            "rate near E": farthest(ratios["near E, g_in"], 1.0),
            "half the gap": farthest(ratios["half the gap"], 1.0),
        },
        note="the ratio farthest from 1 of the four families",
    )


def rate_figure(outcome: Outcome) -> Lines:
    """All families against c t, with the slope -1."""
    names = [key[2:] for key in outcome.curves if key.startswith("t ")]
    series = [Series(outcome.curves[f"t {n}"], outcome.curves[f"w {n}"], f"family {n}") for n in names]
    guide = np.linspace(0, WINDOW[1], 2)
    series.append(Series(guide, np.exp(-guide), "exp(−c t)", "dashed"))
    return Lines("Decay of W₂ at zero temperature", "c t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


FULL_GAP = ((4, 3), (5, 3), (6, 4))
"""(d, dim E) in which the rate is measured to be the whole gap."""


def full_gap_experiment(setting: Setting) -> Outcome:
    """The same for dim E >= 3, where the slow tokens near E^perp no longer decide; dim E = 1 beside it."""
    times = np.linspace(0, 24, 61)
    late = times >= 12
    curves, rates = {"t": times}, {}
    for d, k in (*FULL_GAP, (4, 1)):
        w2 = np.asarray(distance_to_limit(two_level(d, k), subsphere_nodes(d, k, 60.0), times))
        curves[f"{d} {k}"] = w2
        rates[d, k] = -slope(times[late], np.log(w2[late]))
    worst = farthest([rates[case] for case in FULL_GAP], 1.0)
    rows = [{"d": d, "dim E": k, "measured rate / g": rate} for (d, k), rate in rates.items()]
    rivals = {"half the gap": 2 * worst, "rate of a point pair": rates[4, 1]}
    return Outcome(worst, curves=curves, table=rows, rivals=rivals)


def full_gap_figure(outcome: Outcome) -> Lines:
    """Every dim E beside the two rates."""
    t = outcome.curves["t"]
    cases = [name.split() for name in outcome.curves if name != "t"]
    series = [Series(t, outcome.curves[f"{d} {k}"], f"d = {d}, dim E = {k}") for d, k in cases]
    half, whole = len(series) - 1, 0  # the point pair comes last
    series += [
        Series(t, np.exp(-t / 2), "exp(−g t/2)", "dashed", colour=half),
        Series(t, np.exp(-t), "exp(−g t)", "dashed", colour=whole),
    ]
    return Lines("Rate of W₂ against dim E, gap g = 1", "time t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


CLAIMS = (
    Claim(
        "zero-temperature-rate",
        "W2 decays like e^{-ct} with c = min(g_in, g_out/2) for dim E = 1: half the spectral gap when B = I, "
        "because the tokens near E^perp come late.",
        rate_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="fitted on c t in [6, 12], where the faster of the two decays is below 2% of the slower",
        source=ESTIMATE,
        figure=rate_figure,
        theme=THEME,
        unit="measured c / c",
        rivals={
            "rate near E": "W2 decays like the angle of a single token, at g_in = g/|B^T e|.",
            "half the gap": "W2 decays at half the gap of V B^T whatever B is.",
        },
    ),
    Claim(
        "zero-temperature-full-gap",
        "For dim E >= 3 the W2 rate is the full spectral gap of V B^T (B = I, uniform law, dim E = 3 in R^4 and "
        "R^5, 4 in R^6).",
        full_gap_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="fitted on g t in [12, 24], where the decay of the mass near E^perp, e^{-3gt/2}, is below e^{-6}",
        source=ESTIMATE,
        figure=full_gap_figure,
        theme=THEME,
        unit="measured c / g",
        rivals={
            "half the gap": "The rate is g/2, as for a point pair: measured c / (g/2).",
            "rate of a point pair": "The same fit for dim E = 1.",
        },
    ),
)
