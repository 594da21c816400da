"""The claim about long contexts: with beta = c ln n there is a critical c at every overlap."""

from __future__ import annotations

import math

import numpy as np
import torch

from metastable.attention import attend
from metastable.drawing import Lines, Series
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.perspective.sources import ESTIMATE
from metastable.papers.reading import farthest, listed, slope, spanned
from metastable.theory.equiangular import attention_on_others

THEME = "Long contexts"
OVERLAPS = (0.0, 0.3, 0.6)
"""Overlaps of the tokens."""
FACTORS = (0.5, 0.8, 1.0, 1.25, 2.0)
"""c (1 - overlap), of which 1 is critical."""


def counts(setting: Setting) -> np.ndarray:
    """Numbers of tokens; one query over n equiangular keys in R^(n+1)."""
    return np.array(setting.choose((64, 256, 1024), (64, 256, 1024, 4096), (64, 256, 1024)))


def share_on_others(n: int, overlap: float, beta: float) -> float:
    """What of the attention of one of n equiangular tokens is on the others, by `attend`."""
    keys = torch.zeros(n, n + 1, dtype=torch.float64)
    keys[:, 0] = math.sqrt(overlap)
    keys[:, 1:].fill_diagonal_(math.sqrt(1 - overlap))
    mean = attend(keys[:1], keys, beta=beta).mean
    # <x_1, mean> = a + (1 - a) overlap if the token gives a to itself
    return float(1 - keys[0] @ mean[0]) / (1 - overlap)


def context_experiment(setting: Setting) -> Outcome:
    """c (1 - overlap) at which log(share/(1 - share)), as a function of log n, neither rises nor falls."""
    n = counts(setting)
    rows, critical, flat = [], [], []
    curves: dict[str, np.ndarray] = {"n": n.astype(float)}
    for overlap in OVERLAPS:
        slopes = []
        for factor in FACTORS:
            c = factor / (1 - overlap)
            share = np.array([share_on_others(int(k), overlap, c * math.log(k)) for k in n])
            slopes.append(slope(np.log(n), np.log(share / (1 - share))))
            rows.append((overlap, c, factor, *share))
            if overlap == OVERLAPS[1]:
                curves[f"{factor:g}"] = share
        # the slope is 1 - c (1 - overlap): it falls linearly through its zero
        line = np.polyfit(FACTORS, slopes, 1)
        critical.append(-line[1] / line[0])
        flat.append(critical[-1] / (1 - overlap))
    names = ("overlap", "c", "c (1 - overlap)", *(f"share, n = {k}" for k in n))
    return Outcome(
        farthest(critical, 1.0),
        curves=curves,
        table=as_rows(dict(zip(names, zip(*rows, strict=True), strict=True))),
        rivals={
            "one c for every overlap": farthest(flat, 1.0),
            "sqrt(log n)": _power(n, 0.5),
            "log n squared": _power(n, 2.0),
        },
    )


def _power(n: np.ndarray, power: float) -> float:
    """The same for beta = c (ln n)^power (times a unit that makes both equal at the smallest n), at overlap 0."""
    unit = math.log(n[0]) ** (1 - power)
    slopes = []
    for factor in FACTORS:
        share = np.array([share_on_others(int(k), 0.0, factor * unit * math.log(k) ** power) for k in n])
        slopes.append(slope(np.log(n), np.log(share / (1 - share))))
    line = np.polyfit(FACTORS, slopes, 1)
    return float(-line[1] / line[0])


def context_figure(outcome: Outcome) -> Lines:
    """Share of attention on the others against n."""
    n = outcome.curves["n"]
    grid, series = np.geomspace(n[0], n[-1], 81), []
    for place, factor in enumerate(FACTORS):
        c = factor / (1 - OVERLAPS[1])
        exact = [attention_on_others(OVERLAPS[1], round(k), c * math.log(round(k))) for k in grid]
        series.append(Series(grid, exact, f"c (1 − g) = {factor:g}", colour=place))
        series.append(Series(n, outcome.curves[f"{factor:g}"], "" if place else "attend", "points", colour=place))
    title = f"Attention on the other tokens, β = c ln n, overlap g = {OVERLAPS[1]:g}"
    return Lines(title, "number of tokens n", "share of attention", series, log_x=True)


CLAIMS = (
    Claim(
        "long-context",
        lambda setting: (
            "With beta = c ln n attention on the other tokens tends to 1 for c (1 - overlap) < 1 and to 0 for > 1 "
            f"(overlaps {listed(OVERLAPS)}, n {spanned(counts(setting))})."
        ),
        context_experiment,
        expected=1.0,
        tolerance=0.01,
        reason="ln(n-1) stands for ln n, which is 0.0157 at n = 64 and moves the slope between n = 64 and "
        "1024 by 0.004",
        source=ESTIMATE,
        figure=context_figure,
        theme=THEME,
        unit="critical c (1 - overlap)",
        rivals={
            "one c for every overlap": "The critical c is 1, whatever the overlap is.",
            "sqrt(log n)": "The critical beta grows like sqrt(log n).",
            "log n squared": "The critical beta grows like (log n)^2.",
        },
    ),
)
