"""Claims about negative V: tokens split to both ends of the most negative axis, if there is a split that holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.drawing import Lines, Series
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.reading import listed
from metastable.papers.spectral_selection.measuring import PAPER, ends, starts, words
from metastable.theory import (
    PureMode,
    split_threshold,
)

THEME = "Polarisation by negative eigenvalues"
SPECTRA = ((-1.0, -2.0), (-0.5, -1.0, -3.0), (-0.3, -1.0, -2.0, -3.5))
PAIR_BETAS = 0.1, 0.5, 2.0, 8.0
NEAR = 0.01
"""A token is at +-e when 1 - |<x, e>| is below this."""
E_FOLDS = 25.0
"""Of the slowest rate of the mode that is expected: some ten to leave the saddles, and as many to arrive."""


def _share(chosen: Tensor) -> float:
    return float(chosen.double().mean())


def at_both_ends(last: Tensor, axis: int) -> Tensor:
    """Whether all tokens of a system are at +-e of the axis, on both sides."""
    x = last[..., axis]
    return ((1 - x.abs()) < NEAR).all(1) & (x.amax(1) > 0) & (x.amin(1) < 0)


def pair_experiment(setting: Setting) -> Outcome:
    """Share of random pairs that end antipodal on the most negative axis, on another axis, and together."""
    b = setting.choose(60, 400, 40)
    rows: list[dict[str, Any]] = []
    for spectrum in setting.choose(SPECTRA, SPECTRA, SPECTRA[:2]):
        axis = int(np.argmin(spectrum))
        t = max(E_FOLDS / -PureMode(spectrum, axis, 1, 1, beta).growth for beta in PAIR_BETAS)
        last = ends(spectrum, PAIR_BETAS, starts(setting, b, 2, len(spectrum), 6), t)
        for beta, pairs in zip(PAIR_BETAS, last, strict=True):
            rows.append(
                {
                    "eigenvalues": words(spectrum),
                    "beta": beta,
                    "share antipodal on the most negative axis": _share(at_both_ends(pairs, axis)),
                    "share antipodal on the least negative axis": _share(
                        at_both_ends(pairs, int(np.argmax(spectrum)))
                    ),
                    "share together": _share((pairs[:, 0] * pairs[:, 1]).sum(1) > 0.9),
                }
            )
    return Outcome(
        min(row["share antipodal on the most negative axis"] for row in rows),
        table=rows,
        rivals={
            "least negative axis": max(row["share antipodal on the least negative axis"] for row in rows),
            "consensus": max(row["share together"] for row in rows),
        },
        note=f"{b} random pairs in each of {len(rows)} settings",
    )


SIZES = 3, 4, 5, 6, 8
ABOVE = 1.5, 4.0
"""beta over the threshold of the most unequal split of n tokens, n - 1 to 1: every split holds there."""


def split_experiment(setting: Setting) -> Outcome:
    """Share of random starts of n tokens that end split on the most negative axis, however unequally."""
    b = setting.choose(25, 200, 12)
    rows: list[dict[str, Any]] = []
    counts = np.zeros((len(SIZES), max(SIZES)))
    for spectrum in setting.choose(SPECTRA[1:], SPECTRA[1:], SPECTRA[1:2]):
        axis = int(np.argmin(spectrum))
        for place, n in enumerate(SIZES):
            betas = [above * split_threshold(spectrum[axis], n - 1) for above in ABOVE]
            slowest = max(PureMode(spectrum, axis, k, n - k, beta).growth for k in range(1, n) for beta in betas)
            last = ends(spectrum, betas, starts(setting, b, n, len(spectrum), 7, n), E_FOLDS / -slowest)
            for beta, systems in zip(betas, last, strict=True):
                split, plus = at_both_ends(systems, axis), (systems[..., axis] > 0).sum(1)
                minority = torch.minimum(plus, n - plus)
                counts[place] += np.bincount(minority.numpy(), minlength=max(SIZES))[: max(SIZES)]
                rows.append(
                    {
                        "eigenvalues": words(spectrum),
                        "n": n,
                        "beta": beta,
                        "share split on the most negative axis": _share(split),
                        "share split as equally as can be": _share(split & (minority == n // 2)),
                        "share on the least negative axis": _share(at_both_ends(systems, int(np.argmax(spectrum)))),
                    }
                )
    shares = counts / counts.sum(1, keepdims=True)
    return Outcome(
        min(row["share split on the most negative axis"] for row in rows),
        curves={"n": np.array(SIZES, dtype=float), "shares": shares},
        table=rows,
        rivals={
            "always halves": min(row["share split as equally as can be"] for row in rows),
            "least negative axis": max(row["share on the least negative axis"] for row in rows),
        },
        note=f"{b} starts in each of {len(rows)} settings",
    )


def split_figure(outcome: Outcome) -> Lines:
    """How unequal the splits are, by the number of tokens."""
    n, shares = outcome.curves["n"], outcome.curves["shares"]
    series = []
    for k in range(1, int(max(n)) // 2 + 1):
        possible = n >= 2 * k
        label = "one token on the smaller side" if k == 1 else f"{k} tokens there"
        series.append(Series(n[possible], shares[possible, k], label, "marked"))
    ticks = {float(value): f"{value:g}" for value in n}
    title = "How n tokens split on the most negative axis"
    return Lines(title, "number of tokens n", "share of random starts", series, x_ticks=ticks)


CLAIMS = (
    Claim(
        "negative-pair",
        "If V is negative definite two tokens end antipodal on its most negative axis, from almost everywhere and "
        f"at any temperature (beta = {listed(PAIR_BETAS)}).",
        pair_experiment,
        expected=1.0,
        tolerance=0.03,
        reason=f"runs of {E_FOLDS:g} e-folds: only starts within e^-10 of a saddle's stable set are late, less "
        "than one",
        source=PAPER,
        theme=THEME,
        unit="share of random pairs",
        effort=4,
        rivals={
            "least negative axis": "The pair chooses the largest, the least negative, eigenvalue.",
            "consensus": "The two tokens meet.",
        },
    ),
    Claim(
        "negative-split",
        "If V is negative definite n tokens generically end split over both ends of its most negative axis, in "
        f"unequal groups, too (n = {listed(SIZES)}, beta above the threshold of every split).",
        split_experiment,
        expected=1.0,
        tolerance=0.04,
        reason=f"runs of {E_FOLDS:g} e-folds of the slowest rate; one late start of 25 is allowed",
        source=PAPER,
        figure=split_figure,
        theme=THEME,
        unit="share of random starts",
        effort=6,
        rivals={
            "always halves": "The groups are as equal as can be.",
            "least negative axis": "The tokens choose the largest, the least negative, eigenvalue.",
        },
    ),
)
