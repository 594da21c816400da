"""Figures as data: what to draw, not how. Claims return these; the report room prints or animates them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

STYLES = ("line", "dashed", "dotted", "points", "steps")


@dataclass(frozen=True, eq=False)
class Series:
    """One curve y(x). style: one of STYLES. shade in [0, 1]: its place on a colour scale; None: its own colour."""

    x: Any
    y: Any
    label: str
    style: str = "line"
    shade: float | None = None


@dataclass(frozen=True, eq=False)
class Lines:
    """Curves in one coordinate system; labels carry their units (times are dimensionless, W2 is chordal)."""

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    log_x: bool = False
    log_y: bool = False
    y_floor: float | None = None
    """Lower end of a logarithmic y axis, where curves fall to round-off."""


@dataclass(frozen=True, eq=False)
class PhaseMap:
    """Which phase is nearest: phase[i, j] indexes `labels`, for beta[i] and time[j]."""

    title: str
    times: np.ndarray
    betas: np.ndarray
    phase: np.ndarray
    labels: Sequence[str] = ("initial", "concentrated", "terminal")


@dataclass(frozen=True, eq=False)
class Portrait:
    """Tokens on the sphere over time: points (m, n, d) at times (m,), with the weights that move them."""

    title: str
    times: np.ndarray
    points: np.ndarray
    mass: np.ndarray
    V: np.ndarray
    B: np.ndarray
    beta: float


Drawing = Lines | PhaseMap | Portrait
