"""Claims about tokens: what n of them retrieve, and how it tends to the closed form."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from metastable.drawing import Lines, Series
from metastable.papers.claim import Outcome, Setting, as_rows
from metastable.papers.lost_in_the_middle.sampling import MODES, WIDTH, Measured, measured
from metastable.papers.own_error import OwnError, with_systematic
from metastable.papers.reading import beside, fine, slope, spanned
from metastable.papers.verdict import ESTIMATE
from metastable.theory import retrieval_profile

PAPER = "arXiv:2605.09213"
THEME = "Tokens against the closed form"
CASES = ((1.0, 1.0, 0.5), (1.0, 1.0, 1.0), (1.0, 1.0, 1.5), (0.5, 2.0, 3.0), (1.5, 0.5, 0.4), (2.0, 1.0, 0.25))
"""(beta, lambda, t), all below the critical depth. Deeper, or colder, more tokens are needed."""
COUNTS = 16, 32, 64
"""Numbers of tokens: the limit is extrapolated from the last two, 2 S_2n - S_n; the first two tell what is left."""
CASE_SAMPLES = (1600, 800, 400), (16_000, 8000, 4000), (800, 400, 200)
"""Systems of each number of tokens, in a quick, full and small run."""
APPROACH, APPROACH_PARTS = (1.0, 1.0, 0.5), 4
"""(beta, lambda, t) of the approach, and parts of the context, of which each holds a token of the fewest. n times
the deviation falls with t and changes its sign before t = 1.25: there no power is seen."""
APPROACH_COUNTS = (8, 16, 32, 64), (16, 32, 64, 128)
APPROACH_SAMPLES = (8000, 6000, 4000, 3000), (40_000, 30_000, 16_000, 8000)
"""Numbers of tokens, and systems of each, in a quick and a full run; they decide the standard error alone."""
REASON = (
    "what is expected of the rms: standard errors of the averages, and what extrapolation from 32 and 64 tokens "
    "leaves, at most its change from that of 16 and 32"
)


class Limit(NamedTuple):
    """Deviation at n = infinity, its standard error, and at most what it still contains of higher orders.

    That is its change from half as many tokens, which is more wherever those were at least twice as far off.
    """

    deviation: np.ndarray
    error: np.ndarray
    left: np.ndarray


def extrapolated(least: Measured, few: Measured, many: Measured) -> Limit:
    """The deviation from n/2, n and 2n tokens, free of the order 1/n."""
    found = 2 * many.deviation - few.deviation
    left = 2 * few.deviation - least.deviation - found
    return Limit(found, np.hypot(2 * many.error, few.error), left)


def rms_outcome(limits: Sequence[Limit], rivals: Mapping[str, list[np.ndarray]], **rest: Any) -> Outcome:
    """rms over cases and places; noise and what is left make one, too."""
    deviation, error, left = (rms(parts) for parts in zip(*limits, strict=True))
    noise = error / math.sqrt(2 * sum(len(one.deviation) for one in limits))
    others = {name: (rms(values), noise) for name, values in rivals.items()}
    return with_systematic(Outcome(deviation, noise, rivals=others, **rest), math.hypot(error, left))


def closed_form_experiment(setting: Setting) -> Outcome:
    """rms over cases and places of the extrapolated retrieval over the predicted one, less one."""
    limits, rows = [], []
    curves: dict[str, np.ndarray] = {}
    rivals: dict[str, list[np.ndarray]] = {"no recency": [], "softmax rates": [], "beta not in the drift": []}
    for number, (beta, alibi, t) in enumerate(CASES):
        sampled = [
            measured(n, t, beta, alibi, samples, setting.seeds(1, number, n)[0])
            for n, samples in zip(COUNTS, setting.choose(*CASE_SAMPLES), strict=True)
        ]
        limits.append(extrapolated(*sampled))
        many, error = sampled[-1], limits[-1].error
        value = many.predicted * (1 + limits[-1].deviation)
        others = {
            "no recency": retrieval_profile(many.places, t, beta, 0.0, WIDTH, MODES),
            "softmax rates": retrieval_profile(many.places, t / float(np.i0(beta)), beta, alibi, WIDTH, MODES),
            "beta not in the drift": retrieval_profile(many.places, t / beta, beta, alibi, WIDTH, MODES),
        }
        for name, other in others.items():
            rivals[name].append(value / np.asarray(other) - 1)
        case = {"beta": beta, "lambda": alibi, "t": t}
        rows += [
            case | {"s": s, "predicted": p, "measured": v, "standard error": e * p}
            for s, p, v, e in zip(many.places, many.predicted, value, error, strict=True)
        ]
        if (beta, alibi) == (1.0, 1.0):
            place = fine([0.03, 1.0])
            line = retrieval_profile(place, t, beta, alibi, WIDTH, MODES)
            curves |= {"s": place, f"theory {t:g}": np.asarray(line), "places": many.places}
            curves |= {f"tokens {t:g}": value, f"error {t:g}": error * many.predicted}
    return rms_outcome(limits, rivals, curves=curves, table=rows)


def rms(parts: Sequence[np.ndarray]) -> float:
    """Root of the mean square of all entries."""
    return float(np.sqrt(np.mean(np.concatenate(parts) ** 2)))


def closed_form_figure(outcome: Outcome) -> Lines:
    """The U: theory as lines, tokens as dots with error bars."""
    curves = outcome.curves
    depths = [name.removeprefix("theory ") for name in curves if name.startswith("theory ")]
    dots = [
        Series(
            curves["places"],
            curves[f"tokens {t}"],
            f"tokens, n → ∞, t = {t}",
            "points",
            colour=i,
            error=curves[f"error {t}"],
        )
        for i, t in enumerate(depths)
    ]
    lines = [Series(curves["s"], curves[f"theory {t}"], f"theory, t = {t}", colour=i) for i, t in enumerate(depths)]
    title = "What the last token knows of the others, β = 1, λ = 1"
    return Lines(title, "place s in the context", "retrieval S_t(s)", beside(dots, lines))


def approach_experiment(setting: Setting) -> Outcome:
    """Exponent of n of the average deviation from the closed form, which is positive at this depth."""
    counts = np.array(setting.choose(*APPROACH_COUNTS))
    beta, alibi, t = APPROACH
    means, errors = [], []
    for n, samples in zip(counts, setting.choose(*APPROACH_SAMPLES), strict=True):
        seed = setting.seeds(1, 100, int(n))[0]
        one = measured(int(n), t, beta, alibi, samples, seed, APPROACH_PARTS)
        means.append(one.mean)
        errors.append(one.mean_error)
    mean, error, x = np.array(means), np.array(errors), np.log(counts)
    if not (mean > 2 * error).all():
        return Outcome(math.nan, inconclusive="the deviation of some number of tokens is within its noise")
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    uncertainty = float(np.sqrt(((weights * error / mean) ** 2).sum()))
    drawn = fine(counts)
    level = math.exp(float(np.mean(np.log(mean) + x)))
    design = np.column_stack([np.ones_like(x), 1 / counts]) * (mean / error)[:, None]
    second = np.linalg.lstsq(design, np.log(counts * mean) * mean / error, rcond=None)[0][1] / counts
    outcome = Outcome(
        slope(x, np.log(mean)),
        uncertainty,
        rivals={"n^(-1/2)": (-0.5, uncertainty), "n^(-2)": (-2.0, uncertainty), "no limit": (0.0, uncertainty)},
        curves={"n": counts.astype(float), "mean": mean, "error": error, "fine": drawn, "law": level / drawn},
        table=as_rows({"n": counts, "deviation": mean, "standard error": error, "n * deviation": counts * mean}),
    )
    return with_systematic(outcome, slope(x, second))


def approach_figure(outcome: Outcome) -> Lines:
    """The deviation against n."""
    curves = outcome.curves
    dots = Series(curves["n"], curves["mean"], "tokens", "points", colour=0, error=curves["error"])
    law = Series(curves["fine"], curves["law"], "1/n", "dashed", colour=0)
    title = f"Approach to the closed form, β = 1, λ = 1, t = {APPROACH[2]:g}"
    marks = {float(n): f"{n:g}" for n in curves["n"]}
    series, ticks = [dots, law], {0.01: "0.01", 0.03: "0.03", 0.1: "0.1", 0.3: "0.3"}
    y_label = "measured / predicted − 1"
    return Lines(title, "number of tokens n", y_label, series, log_x=True, log_y=True, x_ticks=marks, y_ticks=ticks)


CLAIMS = (
    OwnError(
        "retrieval-closed-form",
        "For causal tokens with ALiBi on the circle, iid at first, n times the correlation of the last token with "
        "the start of the one at place s tends to S_t(s) = sum_m omega_m g_(a_m)(t; s), a_m = m^2 I_m(beta), for "
        "six (beta, lambda, t) and s from 1/8 to 1.",
        closed_form_experiment,
        expected=0.0,
        reason=REASON,
        source=PAPER,
        figure=closed_form_figure,
        relation="at most",
        theme=THEME,
        unit="rms relative deviation",
        effort=8,
        rivals={
            "no recency": "The bias towards recent tokens does not matter: the profile of lambda = 0.",
            "softmax rates": "Modes grow with the rates of the normalised flow, a_m/I_0(beta).",
            "beta not in the drift": "Time counts as in flows without the factor beta in the drift, t/beta.",
        },
    ),
    OwnError(
        "retrieval-one-over-n",
        lambda setting: (
            f"What n tokens retrieve differs from the closed form by an amount like 1/n (n "
            f"{spanned(setting.choose(*APPROACH_COUNTS))}, beta = lambda = 1, t = {APPROACH[2]:g})."
        ),
        approach_experiment,
        expected=-1.0,
        reason="the order 1/n^2, of which a factor 1 + b/n is fitted",
        source=ESTIMATE,
        figure=approach_figure,
        theme=THEME,
        unit="exponent of n",
        effort=8,
        rivals={
            "n^(-1/2)": "The deviation is a fluctuation of the mean over n tokens.",
            "n^(-2)": "The first correction cancels.",
            "no limit": "Correlations of many tokens contribute at leading order.",
        },
    ),
)
