"""Claims about the shape of the profile: its wells."""

from __future__ import annotations

import math

import numpy as np

from metastable.drawing import Lines, Series
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.lost_in_the_middle.sampling import MODES, WIDTH
from metastable.papers.verdict import ESTIMATE
from metastable.theory import critical_depth, multihead_profile, retrieval_profile

PAPER = "arXiv:2605.09213"
THEME = "Wells"
GRID = np.linspace(0.004, 1.0, 5001)
"""Places at which wells are looked for."""
WELL_CASES = tuple((beta, alibi) for beta in (0.5, 1.0, 2.0) for alibi in (0.5, 0.9, 1.2))
"""(beta, lambda), slopes below log 4."""
SHARES = (0.3, 0.6, 0.9, 0.98, 1.02, 1.3, 2.0, 4.0)
"""Depths in units of the critical one."""
DRAWN = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
"""Depths of the figure, beta = lambda = 1, where t_crit = 2.457."""
HEADS = (
    (1.0, 0.2, 3.0),
    (-27.519314453632965, 0.2, 0.25),
    (-1.5515192155322617, 0.5, 0.25),
    (3.9262326774050965e-06, 3.0, 2.0),
)
"""(weight, beta, lambda) of the published double well, and its depth:"""
HEADS_DEPTH = 1.5
ONE_MODE = (0.02, 0.05, 0.1)
"""Inverse temperatures at which all modes but the first are below a hundredth."""


def wells(profile: np.ndarray) -> int:
    """Interior minima of a profile on a grid."""
    return int(((profile[1:-1] < profile[:-2]) & (profile[1:-1] < profile[2:])).sum())


def falls(profile: np.ndarray) -> bool:
    """Whether a profile falls from the first place to the last."""
    return bool((np.diff(profile) < 0).all())


def well_experiment(setting: Setting) -> Outcome:
    """Share of cases with one well below t_crit, and none but a fall above."""
    right: dict[str, list[bool]] = {"": [], "no recency": [], "always a U": [], "half the depth": []}
    for beta, alibi in WELL_CASES:
        critical = float(critical_depth(beta, alibi, WIDTH, MODES))
        for share in SHARES:
            profile = np.asarray(retrieval_profile(GRID, share * critical, beta, alibi, WIDTH, MODES))
            flat = np.asarray(retrieval_profile(GRID, share * critical, beta, 0.0, WIDTH, MODES))
            right[""].append(as_predicted(profile, share < 1))
            right["no recency"].append(as_predicted(flat, share < 1))
            right["always a U"].append(as_predicted(profile, True))
            right["half the depth"].append(as_predicted(profile, share < 0.5))
    part = {name: float(np.mean(values)) for name, values in right.items()}
    drawn = GRID[GRID >= 0.1][::10]
    lines = {f"t = {t:g}": np.asarray(retrieval_profile(drawn, t)) for t in DRAWN}
    lowest = [float(GRID[np.argmin(np.asarray(retrieval_profile(GRID, t)))]) for t in DRAWN]
    return Outcome(
        part.pop(""),
        rivals=part,
        curves={"s": drawn} | {name: line / line.min() for name, line in lines.items()},
        table=[{"t": t, "lowest at s": s} for t, s in zip(DRAWN, lowest, strict=True)],
        note=f"{len(WELL_CASES) * len(SHARES)} cases; lowest places for beta = lambda = 1, t_crit = 2.457",
    )


def as_predicted(profile: np.ndarray, well: bool) -> bool:
    """Whether there is exactly one well where one is predicted, and a plain fall where none is."""
    return wells(profile) == 1 if well else falls(profile)


def well_figure(outcome: Outcome) -> Lines:
    """The U at several depths, each in units of its lowest place."""
    curves = dict(outcome.curves)
    place = curves.pop("s")
    last = max(1, len(curves) - 1)
    series = [Series(place, y, name, shade=i / last) for i, (name, y) in enumerate(curves.items())]
    title = "The U and its end, β = λ = 1: recency is lost at t = 2.46"
    return Lines(title, "place s in the context", "S_t(s) / its minimum", series)


def double_experiment(setting: Setting) -> Outcome:
    """Wells of the published heads together, and of other combinations."""
    place = GRID[(GRID >= 0.02) & (GRID <= 0.98)]
    together = np.asarray(multihead_profile(place, HEADS_DEPTH, HEADS, WIDTH, MODES))
    alone = [abs(np.asarray(multihead_profile(place, HEADS_DEPTH, [head], WIDTH, MODES))) for head in HEADS]
    positive = [(abs(weight), beta, alibi) for weight, beta, alibi in HEADS]
    added = np.asarray(multihead_profile(place, HEADS_DEPTH, positive, WIDTH, MODES))
    low = np.flatnonzero((together[1:-1] < together[:-2]) & (together[1:-1] < together[2:])) + 1
    return Outcome(
        float(wells(together)),
        rivals={"one head": float(max(map(wells, alone))), "positive weights": float(wells(added))},
        curves={"s": place[place >= 0.08], "together": together[place >= 0.08] - together.min()},
        table=[{"well at s": float(place[i]), "value": float(together[i])} for i in low],
    )


def double_figure(outcome: Outcome) -> Lines:
    """The double well."""
    series = [Series(outcome.curves["s"], outcome.curves["together"], "four heads")]
    title = "Two wells of four heads, t = 1.5"
    return Lines(title, "place s in the context", "profile − its minimum", series)


def bend(alibi: float, beta: float) -> float:
    """S_t at 1 - h over that at 1, less one, at the critical depth, over h^2: half the curvature there."""
    depth, step = float(critical_depth(beta, alibi, WIDTH, MODES)), 1e-3
    near, last = (retrieval_profile(place, depth, beta, alibi, WIDTH, MODES) for place in (1 - step, 1.0))
    return float(near / last - 1) / step**2


def survival_experiment(setting: Setting) -> Outcome:
    """The slope at which the profile at t_crit changes from convex to concave at the end (K7)."""
    from scipy import optimize

    found = [float(optimize.brentq(bend, 0.3, 5.0, args=(beta,))) for beta in ONE_MODE]
    limit = float(np.polyval(np.polyfit(ONE_MODE, found, len(ONE_MODE) - 1), 0.0))
    place = GRID[500::10]
    curves = {"s": place}
    for alibi in (0.7, 1.0, 2.0, 3.0):
        depth = 1.02 * float(critical_depth(ONE_MODE[0], alibi, WIDTH, MODES))
        profile = np.asarray(retrieval_profile(place, depth, ONE_MODE[0], alibi, WIDTH, MODES))
        curves[f"λ = {alibi:g}"] = profile / profile[-1]
    return Outcome(
        limit,
        rivals={"never": math.inf, "from lambda = 1": 1.0, "from lambda = 2": 2.0},
        curves=curves,
        table=[{"beta": beta, "lambda": value} for beta, value in zip(ONE_MODE, found, strict=True)],
    )


def survival_figure(outcome: Outcome) -> Lines:
    """Profiles a little beyond their critical depths."""
    curves = dict(outcome.curves)
    place = curves.pop("s")
    series = [Series(place, y, name) for name, y in curves.items()]
    title = "Two hundredths beyond the critical depth, one mode"
    return Lines(title, "place s in the context", "S_t(s) / S_t(1)", series)


CLAIMS = (
    Claim(
        "lost-in-the-middle",
        "Below the critical depth the retrieval profile has exactly one interior minimum, above it falls all the "
        "way: the middle is lost first, then the recent tokens (beta from 0.5 to 2, lambda from 0.5 to 1.2, t from "
        "0.3 to 4 critical depths).",
        well_experiment,
        expected=1.0,
        tolerance=0.0,
        reason="the closed form is exact to rounding on a grid of 5001 places; at 0.98 critical depths the well is "
        "far wider than a place",
        source=ESTIMATE,
        figure=well_figure,
        theme=THEME,
        unit="share of cases",
        rivals={
            "no recency": "The shape does not need the bias towards recent tokens: that of lambda = 0.",
            "always a U": "There is a well at every depth.",
            "half the depth": "Recency is lost at half the critical depth.",
        },
    ),
    Claim(
        "double-well",
        "The four published heads (weight, beta, lambda), read out together at t = 1.5, have two wells.",
        double_experiment,
        expected=2.0,
        tolerance=0.0,
        reason="a number of minima of a closed form on a fine grid",
        source=PAPER,
        figure=double_figure,
        theme=THEME,
        unit="wells",
        rivals={
            "one head": "One of the heads by itself has as many.",
            "positive weights": "The signs of the weights do not matter.",
        },
    ),
    Claim(
        "well-survives",
        "Where one mode rules, the well ends at the critical depth only for slopes lambda < log 4: above, a "
        "maximum enters at s = 1 first, and well and maximum annihilate later.",
        survival_experiment,
        expected=math.log(4.0),
        tolerance=0.005,
        reason="curvature from a difference over a thousandth of the context, and beta extrapolated to 0 from "
        "three values up to 0.1, where the second mode is a twentieth of the first",
        source=ESTIMATE,
        figure=survival_figure,
        theme=THEME,
        unit="lambda",
        rivals={
            "never": "Beyond the critical depth the profile falls for every slope.",
            "from lambda = 1": "The slope of the published figures is the border.",
            "from lambda = 2": "Slopes up to 2 behave like that of the published figures.",
        },
    ),
)
