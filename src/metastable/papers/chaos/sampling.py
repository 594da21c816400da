"""How the experiments of this paper run: iid contexts, observers that nobody sees, and what is read off them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import Flow, SelfAttention
from metastable.measure import Ensemble
from metastable.papers.claim import Outcome
from metastable.papers.own_error import with_systematic
from metastable.papers.reading import beside, slope
from metastable.solve import solve
from metastable.weights import AttentionWeights

PAPER = "arXiv:2605.16747"
RTOL = 1e-3
"""Tolerance of the runs, far below the noise of a context, n^{-1/2}, and that of averages over contexts."""


class Mean(NamedTuple):
    """A mean over independent contexts, and its standard error."""

    value: float
    error: float

    @classmethod
    def of(cls, values: np.ndarray | Tensor) -> Mean:
        """The mean of one value per context."""
        given = np.asarray(values, dtype=float)
        return cls(float(given.mean()), float(given.std(ddof=1)) / math.sqrt(len(given)))


def identity(d: int, beta: float) -> SelfAttention:
    """V = B = I."""
    return SelfAttention(AttentionWeights(V=np.eye(d), B=np.eye(d)), beta)


def uniform_contexts(draws: int, n: int, d: int, seed: int) -> Tensor:
    """(draws, n, d) iid uniform tokens."""
    return sphere.uniform(draws * n, d, seed=seed).view(draws, n, d)


def observed(contexts: Tensor, observers: Tensor) -> Ensemble:
    """Contexts of equal masses with observers (draws, m, d), or the same (m, d) in each, of mass zero."""
    draws, n, _ = contexts.shape
    watching = observers.expand(draws, -1, -1)
    mass = torch.cat([torch.full((n,), 1 / n), torch.zeros(watching.shape[1])])
    return Ensemble(torch.cat([contexts, watching], dim=1), mass)


def watched(
    flow: Flow, contexts: Tensor, observers: Tensor, times: Sequence[float] | np.ndarray, rtol: float = RTOL
) -> Tensor:
    """Positions (times, draws, m, d) of the observers, carried by the contexts."""
    grid = np.asarray(times, dtype=float)
    path = solve(flow, observed(contexts, observers), t=float(grid[-1]), times=grid, rtol=rtol, atol=rtol)
    return path.points[:, :, contexts.shape[1] :]


def pooled(means: Sequence[Mean]) -> Mean:
    """The mean of independent means."""
    value, error = np.array(means).T
    return Mean(float(value.mean()), math.hypot(*error) / len(means))


class Fit(NamedTuple):
    """An exponent of n with its standard error, and what the next orders, a factor 1 + b/n + c/n^2, do to it."""

    exponent: float
    error: float
    bend: float = 0.0


BELOW = (4, 2)
"""Parts of the smallest number of tokens at which squares are measured, too, with so many times the contexts: the
next orders are larger there, and they cost little."""
NEXT_ORDER = "the next orders, 1 + b/n + c/n^2, fitted with a half and a quarter of the smallest n, too"
"""The reason of claims about powers of n and their constants."""


def with_fewer(counts: Sequence[int], draws: Sequence[int]) -> list[tuple[int, int]]:
    """Numbers of tokens with their numbers of contexts, from a quarter of the smallest on.

    >>> with_fewer((32, 96), (50, 20))
    [(8, 200), (16, 100), (32, 50), (96, 20)]
    """
    fewer = [(counts[0] // part, draws[0] * part) for part in BELOW]
    return [*fewer, *zip(counts, draws, strict=True)]


def root_exponent(counts: Sequence[int] | np.ndarray, squares: Sequence[Mean], fewer: int = 0) -> Fit:
    """Exponent of the root of mean squares against n, by least squares of the logarithms.

    fewer: so many of the first are no part of the fit, and only tell its bend.
    """
    n, (value, error) = np.asarray(counts, dtype=float), np.array(squares).T
    x = np.log(n[fewer:])
    bend = slope(x, next_orders(n, squares)[fewer:]) / 2 if fewer else 0.0
    return Fit(slope(x, np.log(value[fewer:])) / 2, exponent_error(n[fewer:], (error / value)[fewer:]), bend)


def next_orders(counts: Sequence[float] | np.ndarray, squares: Sequence[Mean]) -> np.ndarray:
    """b/n + c/n^2 of mean squares a/n e^{b/n + c/n^2}, by weighted least squares of logarithms."""
    n, (value, error) = np.asarray(counts, dtype=float), np.array(squares).T
    weight = value / error
    design = np.column_stack([np.ones_like(n), 1 / n, 1 / n**2])
    _, *rest = np.linalg.lstsq(design * weight[:, None], np.log(n * value) * weight, rcond=None)[0]
    return np.asarray(design[:, 1:] @ rest)


def exponent_error(counts: Sequence[int] | np.ndarray, relative: Sequence[float] | np.ndarray) -> float:
    """Standard error of that exponent when the mean squares have these relative ones.

    >>> round(exponent_error([10, 100, 1000], [0.1, 0.1, 0.1]), 4)
    0.0154
    """
    x = np.log(np.asarray(counts, dtype=float))
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return float(np.sqrt(((weights * np.asarray(relative)) ** 2).sum())) / 2


def root_level(counts: Sequence[int] | np.ndarray, squares: Sequence[Mean]) -> float:
    """c of the law c/sqrt(n) that fits the roots of mean squares, the last ones, best, in logarithms."""
    value = np.array(squares[-len(counts) :]).T[0]
    return math.exp(float(np.mean(np.log(value * np.asarray(counts)))) / 2)


def root_curves(label: str, squares: Sequence[Mean], law: float, at: np.ndarray) -> dict[str, np.ndarray]:
    """What `counts_figure` draws of one case: roots of mean squares with their errors, and law/sqrt(n)."""
    value, error = np.array(squares).T
    root = np.sqrt(value)
    return {f"measured {label}": root, f"error {label}": error / root / 2, f"theory {label}": law / np.sqrt(at)}


def averaged(fits: Sequence[Fit]) -> Fit:
    """The mean of independent exponents."""
    exponent, error, bend = np.array(fits).T
    return Fit(float(exponent.mean()), math.hypot(*error) / len(fits), float(bend.mean()))


def rate_outcome(fits: Sequence[Fit], rivals: Mapping[str, Sequence[float] | float], **rest: Any) -> Outcome:
    """The mean exponent beside those of rivals, one for each fit or the same for all."""
    found = averaged(fits)
    others = {name: (float(np.mean(value)), found.error) for name, value in rivals.items()}
    return with_systematic(Outcome(found.exponent, found.error, rivals=others, **rest), found.bend)


def counts_figure(outcome: Outcome, title: str, y_label: str) -> Lines:
    """Numbers against n: "measured LABEL" with "error LABEL" as dots, "theory LABEL" on "fine" as lines."""
    curves = outcome.curves
    labels = [name.removeprefix("measured ") for name in curves if name.startswith("measured ")]
    dots = [
        Series(curves["n"], curves[f"measured {one}"], one, "points", colour=i, error=curves[f"error {one}"])
        for i, one in enumerate(labels)
    ]
    lines = [Series(curves["fine"], curves[f"theory {one}"], "", colour=i) for i, one in enumerate(labels)]
    ticks = {float(n): f"{n:g}" for n in curves["n"]}
    return Lines(title, "tokens of context n", y_label, beside(dots, lines), log_x=True, log_y=True, x_ticks=ticks)
