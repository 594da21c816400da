"""Claims about tokens: what n of them retrieve, and how it tends to the closed form."""

from __future__ import annotations

import math

import numpy as np

from metastable.drawing import Lines, Series
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.lost_in_the_middle.sampling import MODES, WIDTH, Measured, measured
from metastable.papers.reading import SAMPLING, beside, fine, slope, spanned
from metastable.papers.verdict import ESTIMATE
from metastable.theory import retrieval_profile

PAPER = "arXiv:2605.09213"
THEME = "Tokens against the closed form"
CASES = ((1.0, 1.0, 0.5), (1.0, 1.0, 1.0), (1.0, 1.0, 1.5), (0.5, 2.0, 3.0), (1.5, 0.5, 0.4), (2.0, 1.0, 0.25))
"""(beta, lambda, t), all below the critical depth. Deeper, or colder, more tokens are needed."""
COUNTS = 32, 64
"""Numbers of tokens from which the limit is extrapolated, 2 S_2n - S_n."""
CASE_SAMPLES = (800, 400), (8000, 4000), (400, 200)
"""Systems of each number of tokens, in a quick, full and small run."""
SAMPLE_ERROR = 0.6
"""Standard error of an extrapolated average over an eighth of the context, relative to it, times sqrt(systems of 64
tokens): 0.3 to 0.8 in the cases above, 0.56 in the mean square."""
NEXT_ORDER = 0.02
"""What the extrapolation leaves, of order 1/n^2: n times the deviation changes by up to 0.6 from 32 to 64 tokens in
the coldest case, which leaves 0.6/32."""
APPROACH = 1.0, 1.0, 0.7
"""(beta, lambda, t) of the approach. n times the deviation is 0.7 there, at 16 and at 32 tokens alike; it changes
its sign before t = 1.25, where it is -3 and the order 1/n^2 a quarter of it at 16 tokens."""
APPROACH_COUNTS = (16, 32, 64), (32, 64, 128)
APPROACH_SAMPLES = (18_000, 9000, 6000), (40_000, 20_000, 16_000)
APPROACH_NOISE = {16: 5.5, 32: 6.0, 64: 6.5, 128: 7.0}
"""Relative standard error of the deviation of n tokens times sqrt(systems)."""
APPROACH_ORDER = 0.05
"""How far the order 1/n^2 moves the exponent: it is 4% of the deviation, and less than the noise, at 16 tokens."""


def case_samples(setting: Setting) -> tuple[int, int]:
    """How many systems of 32 and of 64 tokens."""
    found: tuple[int, int] = setting.choose(*CASE_SAMPLES)
    return found


def case_tolerance(setting: Setting) -> float:
    """Noise of the rms of the averages and the order that is left, twice as large as expected."""
    return 2 * math.hypot(SAMPLE_ERROR / math.sqrt(case_samples(setting)[1]), NEXT_ORDER)


def extrapolated(few: Measured, many: Measured) -> tuple[np.ndarray, np.ndarray]:
    """Deviation at n = infinity from n and 2n, which is free of the order 1/n, and its standard error."""
    return 2 * many.deviation - few.deviation, np.hypot(2 * many.error, few.error)


def closed_form_experiment(setting: Setting) -> Outcome:
    """rms over cases and places of the extrapolated retrieval over the predicted one, less one."""
    found, errors, rows = [], [], []
    curves: dict[str, np.ndarray] = {}
    rivals: dict[str, list[np.ndarray]] = {"no recency": [], "softmax rates": [], "beta not in the drift": []}
    for number, (beta, alibi, t) in enumerate(CASES):
        few, many = (
            measured(n, t, beta, alibi, samples, setting.seeds(1, number, n)[0])
            for n, samples in zip(COUNTS, case_samples(setting), strict=True)
        )
        deviation, error = extrapolated(few, many)
        found.append(deviation)
        errors.append(error)
        value = many.predicted * (1 + deviation)
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
    total = rms(found)
    noise = rms(errors) / math.sqrt(2 * sum(map(len, found)))
    return Outcome(
        total,
        uncertainty=noise,
        rivals={name: (rms(values), noise) for name, values in rivals.items()},
        curves=curves,
        table=rows,
    )


def rms(parts: list[np.ndarray]) -> float:
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


def approach_error(setting: Setting) -> float:
    """Standard error of the exponent, from the first and the last number of tokens."""
    counts, samples = setting.choose(*APPROACH_COUNTS), setting.choose(*APPROACH_SAMPLES)
    ends = [APPROACH_NOISE[counts[i]] / math.sqrt(samples[i]) for i in (0, -1)]
    return math.hypot(*ends) / math.log(counts[-1] / counts[0])


def approach_experiment(setting: Setting) -> Outcome:
    """Exponent of n of the average deviation from the closed form, which is positive at this depth."""
    counts = np.array(setting.choose(*APPROACH_COUNTS))
    beta, alibi, t = APPROACH
    means, errors = [], []
    for n, samples in zip(counts, setting.choose(*APPROACH_SAMPLES), strict=True):
        one = measured(int(n), t, beta, alibi, samples, setting.seeds(1, 100, int(n))[0])
        means.append(one.mean)
        errors.append(one.mean_error)
    mean, error, x = np.array(means), np.array(errors), np.log(counts)
    if not (mean > 2 * error).all():
        return Outcome(math.nan, inconclusive="the deviation of some number of tokens is within its noise")
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    uncertainty = float(np.sqrt(((weights * error / mean) ** 2).sum()))
    drawn = fine(counts)
    level = math.exp(float(np.mean(np.log(mean) + x)))
    return Outcome(
        slope(x, np.log(mean)),
        uncertainty,
        rivals={"n^(-1/2)": (-0.5, uncertainty), "n^(-2)": (-2.0, uncertainty), "no limit": (0.0, uncertainty)},
        curves={"n": counts.astype(float), "mean": mean, "error": error, "fine": drawn, "law": level / drawn},
        table=as_rows({"n": counts, "deviation": mean, "standard error": error, "n * deviation": counts * mean}),
    )


def approach_figure(outcome: Outcome) -> Lines:
    """The deviation against n."""
    curves = outcome.curves
    dots = Series(curves["n"], curves["mean"], "tokens", "points", colour=0, error=curves["error"])
    law = Series(curves["fine"], curves["law"], "1/n", "dashed", colour=0)
    title = "Approach to the closed form, β = 1, λ = 1, t = 0.7"
    marks = {float(n): f"{n:g}" for n in curves["n"]}
    series, ticks = [dots, law], {0.01: "0.01", 0.02: "0.02", 0.04: "0.04"}
    y_label = "measured / predicted − 1"
    return Lines(title, "number of tokens n", y_label, series, log_x=True, log_y=True, x_ticks=marks, y_ticks=ticks)


CLAIMS = (
    Claim(
        "retrieval-closed-form",
        "For causal tokens with ALiBi on the circle, iid at first, n times the correlation of the last token with "
        "the start of the one at place s tends to S_t(s) = sum_m omega_m g_(a_m)(t; s), a_m = m^2 I_m(beta), for "
        "six (beta, lambda, t) and s from 1/8 to 1.",
        closed_form_experiment,
        expected=0.0,
        tolerance=case_tolerance,
        reason=lambda setting: (
            "twice what is expected of the rms: the standard error of 2 S_64 - S_32, "
            f"{SAMPLE_ERROR / math.sqrt(case_samples(setting)[1]):.1%} from {case_samples(setting)[1]} systems, "
            f"and the order 1/n^2, {NEXT_ORDER:.0%}"
        ),
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
    Claim(
        "retrieval-one-over-n",
        lambda setting: (
            f"What n tokens retrieve differs from the closed form by an amount like 1/n (n "
            f"{spanned(setting.choose(*APPROACH_COUNTS))}, beta = lambda = 1, t = {APPROACH[2]:g})."
        ),
        approach_experiment,
        expected=-1.0,
        tolerance=lambda setting: APPROACH_ORDER + SAMPLING * approach_error(setting),
        reason=lambda setting: (
            f"{SAMPLING:g} standard errors of the exponent, {approach_error(setting):.2g} each, and "
            f"{APPROACH_ORDER} for the order 1/n^2"
        ),
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
