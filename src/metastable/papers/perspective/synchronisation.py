"""The claim that tokens synchronise for every beta >= 0 when d >= 3."""

from __future__ import annotations

import math

import numpy as np

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import SelfAttention
from metastable.measure import Ensemble
from metastable.observe import along, pair_fraction
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.perspective.phase_diagram import CLOSE, LAST, THEME, TOKENS
from metastable.papers.perspective.sources import SYNCHRONISATION
from metastable.papers.perspective.tokens import identity
from metastable.papers.reading import listed
from metastable.solve import Event, solve

BETAS = (0.5, 1.0, 2.0, 3.0)
"""Inverse temperatures; the time that clusters need grows like e^{2 beta}."""

MET = Event(
    lambda points, mass: (mass[:, None] @ points).square().sum((1, 2)),
    level=1 - (1 - CLOSE) / 1000,
    stop=True,
    name="met",
    many=True,
)
"""Tokens are one cluster: 1 - |mean|^2, the mean of 1 - <x_i, x_j> over all pairs of n = 32 tokens, is at most
1e-6, so that of no pair it is more than 1e-6 n^2/2 = 0.0005; and tokens in a hemisphere only come closer. The draw
is not followed any further."""


def end_of(beta: float) -> float:
    """20 + 10 e^{2 beta}: two clusters that are nearly antipodal meet after a few times e^{2 beta}."""
    return 20.0 + 10 * math.exp(2 * beta)


def settling_experiment(setting: Setting) -> Outcome:
    """Share of draws of uniform tokens on S^2 all of whose pairs are close at a late time."""
    count = setting.choose(20, 512, 12)
    betas = setting.choose(BETAS, (*BETAS, 4.0), (0.5, 1.0, 3.0))
    rows, late, early = [], [], []
    curves: dict[str, np.ndarray] = {}
    for beta, seed in zip(betas, setting.seeds(len(betas), 3), strict=True):
        many = Ensemble(sphere.uniform(count * TOKENS, 3, seed=seed).reshape(count, TOKENS, 3))
        times = np.concatenate([[0.0], np.geomspace(1.0, end_of(beta), 60)])
        flow = SelfAttention(identity(3), beta)
        path = solve(flow, many, float(times[-1]), times, rtol=1e-4, atol=1e-5, events=[MET])
        done = (along(path, lambda systems: pair_fraction(systems, CLOSE)).numpy() == 1).mean(1)
        late.append(float(done[-1]))
        early.append(float(np.interp(LAST, times, done)))
        rows.append((beta, float(times[-1]), early[-1], late[-1]))
        curves[f"{beta:g}"] = np.stack([times[1:], done[1:]])
    names = ("beta", "last time", "share at t = 30", "share at the last time")
    return Outcome(
        min(late),
        curves=curves,
        table=as_rows(dict(zip(names, zip(*rows, strict=True), strict=True))),
        rivals={"what t = 30 shows": min(early)},
    )


def settling_figure(outcome: Outcome) -> Lines:
    """Share of synchronised draws over time."""
    series = [Series(t, done, f"β = {beta}") for beta, (t, done) in outcome.curves.items()]
    title = f"{TOKENS} uniform tokens on S²: draws that are one cluster"
    return Lines(title, "time t", "share of draws", series, log_x=True, moments={LAST: "published last time"})


CLAIMS = (
    Claim(
        "synchronisation",
        f"For d = 3 uniform tokens synchronise whatever beta >= 0 is (beta = {listed(BETAS)}): every draw ends "
        "as one cluster.",
        settling_experiment,
        expected=1.0,
        tolerance=0.0,
        reason="a count; by the last time, 20 + 10 e^(2 beta), clusters have met unless they were antipodal "
        "to 1e-4",
        source=SYNCHRONISATION,
        figure=settling_figure,
        theme=THEME,
        unit="share of draws",
        effort=2,
        rivals={
            "what t = 30 shows": "Draws that are several clusters at the last time of the published diagram "
            "stay so.",
        },
    ),
)
