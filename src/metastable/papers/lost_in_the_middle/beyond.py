"""Claims beyond the paper: causal tokens on spheres of any dimension, unnormalised and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from metastable.drawing import Lines, Series
from metastable.papers.claim import Outcome, Setting
from metastable.papers.lost_in_the_middle.simulation import (
    CASE_SAMPLES,
    COUNTS,
    REASON,
    extrapolated,
    rms_outcome,
)
from metastable.papers.lost_in_the_middle.sphere_sampling import linear_profile, linear_rate, measured_on_sphere
from metastable.papers.own_error import OwnError
from metastable.papers.reading import beside, fine
from metastable.papers.verdict import ESTIMATE

THEME = "Beyond the circle"


class Case(NamedTuple):
    """Tokens on S^{d-1} at a depth that is given as a t, with the rate a of the closed form."""

    d: int
    beta: float
    alibi: float
    depth: float

    def label(self) -> str:
        """In a legend."""
        return f"d = {self.d}, β = {self.beta:g}, λ = {self.alibi:g}, at = {self.depth:g}"


UNNORMALISED = Case(3, 1.0, 1.0, 0.7), Case(3, 2.0, 2.0, 0.4), Case(5, 1.0, 0.5, 0.6)
SOFTMAX = Case(2, 1.0, 1.0, 0.7), Case(3, 2.0, 2.0, 0.7), Case(5, 2.0, 0.5, 0.5)
"""All below the depth a t = 2(1 - e^-lambda) at which recency is lost."""


def experiment(setting: Setting, cases: Sequence[Case], normalized: bool) -> Outcome:
    """rms over cases and places of the extrapolated retrieval over the predicted one, less one."""
    limits, rows = [], []
    curves: dict[str, np.ndarray] = {"cases": np.array(cases)}
    rivals: dict[str, list[np.ndarray]] = {
        "no recency": [],
        "rates of the other flow": [],
        "rates of the circle": [],
    }
    for number, case in enumerate(cases):
        d, beta, alibi, depth = case
        t = depth / linear_rate(d, beta, normalized)
        sampled = [
            measured_on_sphere(n, d, t, beta, alibi, normalized, samples, setting.seeds(1, number, n)[0])
            for n, samples in zip(COUNTS, setting.choose(*CASE_SAMPLES), strict=True)
        ]
        limits.append(extrapolated(*sampled))
        many, error = sampled[-1], limits[-1].error
        value, places = many.predicted * (1 + limits[-1].deviation), many.places
        others = {
            "no recency": linear_profile(places, depth, 0.0),
            "rates of the other flow": linear_profile(places, linear_rate(d, beta, not normalized) * t, alibi),
        }
        if d > 2:
            others["rates of the circle"] = linear_profile(places, linear_rate(2, beta, normalized) * t, alibi)
        for name, other in others.items():
            rivals[name].append(value / other - 1)
        rows += [
            {"d": d, "beta": beta, "lambda": alibi, "t": t, "s": s, "predicted": p, "measured": v}
            | {"standard error": e * p}
            for s, p, v, e in zip(places, many.predicted, value, error, strict=True)
        ]
        line = fine([0.05, 1.0])
        curves |= {"s": line, "places": places, f"theory {number}": linear_profile(line, depth, alibi)}
        curves |= {f"tokens {number}": value, f"error {number}": error * many.predicted}
    return rms_outcome(limits, rivals, curves=curves, table=rows)


def figure(outcome: Outcome, title: str) -> Lines:
    """Theory as lines, tokens as dots with error bars."""
    curves, dots, lines = outcome.curves, [], []
    for i, row in enumerate(curves["cases"].tolist()):
        label = Case(int(row[0]), *row[1:]).label()
        y, error = curves[f"tokens {i}"], curves[f"error {i}"]
        dots.append(Series(curves["places"], y, f"tokens, n → ∞, {label}", "points", colour=i, error=error))
        lines.append(Series(curves["s"], curves[f"theory {i}"], "theory", colour=i))
    return Lines(title, "place s in the context", "linear retrieval n E⟨x_last(t), x_s(0)⟩", beside(dots, lines))


RIVALS = {
    "no recency": "The bias towards recent tokens does not matter: the profile of lambda = 0.",
    "rates of the circle": "The dimension does not matter: the profile with the rate of d = 2.",
}

CLAIMS = (
    OwnError(
        "retrieval-on-spheres",
        "For causal tokens with ALiBi on S^(d-1), unnormalised and iid at first, n E<x_last(t), x_s(0)> tends to "
        "g_a(t; s) of the circle with a = (d-1) E[u e^(beta u)], u a coordinate of a uniform point (d = 3 and 5).",
        lambda setting: experiment(setting, UNNORMALISED, normalized=False),
        expected=0.0,
        reason=REASON,
        source=ESTIMATE,
        figure=lambda outcome: figure(outcome, "Unnormalised causal tokens on spheres"),
        relation="at most",
        theme=THEME,
        unit="rms relative deviation",
        effort=6,
        rivals=RIVALS | {"rates of the other flow": "The rate is that of softmax, (d-1) A_d(beta)/beta."},
    ),
    OwnError(
        "retrieval-softmax",
        "Normalising attention changes the time and nothing else: for softmax the limit is g_a(t; s) with "
        "a = (d-1) A_d(beta)/beta, the growth rate of the first mode (d = 2, 3 and 5).",
        lambda setting: experiment(setting, SOFTMAX, normalized=True),
        expected=0.0,
        reason=REASON,
        source=ESTIMATE,
        figure=lambda outcome: figure(outcome, "Softmax causal tokens on spheres"),
        relation="at most",
        theme=THEME,
        unit="rms relative deviation",
        effort=6,
        rivals=RIVALS
        | {"rates of the other flow": "The rate is that of unnormalised attention, (d-1) E[u e^(beta u)]."},
    ),
)
