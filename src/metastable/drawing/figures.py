"""Figures as data: what to draw, not how. Claims and audits give these; renderers print them or make pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from metastable.errors import InvalidInput

STYLES = ("line", "dashed", "dotted", "points", "steps", "marked")


@dataclass(frozen=True, eq=False)
class Series:
    """One curve y(x) in one of STYLES; "marked" is a line with a dot at every point, hollow where `hollow` says.

    Its colour: by place in the figure; `colour` names another place in the palette; `shade` in [0, 1] is a place on
    the scale from light to dark. A series without a label is not in the legend.
    """

    x: Any
    y: Any
    label: str
    style: str = "line"
    shade: float | None = None
    colour: int | None = None
    hollow: Sequence[bool] = ()

    def __post_init__(self) -> None:
        if self.style not in STYLES:
            raise InvalidInput(f"style must be one of {', '.join(STYLES)}, got {self.style!r}")
        if self.hollow and len(self.hollow) != len(self.x):
            raise InvalidInput(f"hollow needs a value for each of the {len(self.x)} points, got {len(self.hollow)}")


def shaded(
    curves: Iterable[tuple[Any, Any]], labels: Sequence[str], style: str = "line", darkest: int | None = None
) -> list[Series]:
    """Curves (x, y) of one family as series from light to dark; `darkest` is the number of the darkest."""
    end = max(1, len(labels) - 1 if darkest is None else darkest)
    named = zip(curves, labels, strict=True)
    return [Series(x, y, label, style, shade=i / end) for i, ((x, y), label) in enumerate(named)]


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
    x_ticks: Mapping[float, str] | None = None
    y_ticks: Mapping[float, str] | None = None
    """Marks on an axis, place to text; None leaves them to the renderer. The axis reaches as far as its marks."""


@dataclass(frozen=True, eq=False)
class PhaseMap:
    """Which phase it is: phase[i, j] indexes `labels`, for beta[i] and time[j]."""

    title: str
    times: Float[np.ndarray, "m"]
    betas: Float[np.ndarray, "k"]
    phase: Integer[np.ndarray, "k m"]
    labels: Sequence[str] = ("initial", "concentrated", "terminal")


@dataclass(frozen=True, eq=False)
class Eigenvalues:
    """Eigenvalues of one matrix, and which of them are dominant."""

    label: str
    values: Sequence[complex]
    dominant: Sequence[bool]


@dataclass(frozen=True, eq=False)
class Spectra:
    """Eigenvalues of one or more matrices in the complex plane."""

    title: str
    parts: Sequence[Eigenvalues]


@dataclass(frozen=True, eq=False)
class Axis:
    """A direction of R^d that is drawn as a diameter of the sphere, in the colour of a phase (an index)."""

    label: str
    direction: Float[np.ndarray, "d"]
    phase: int


@dataclass(frozen=True, eq=False)
class Portrait:
    """Tokens on the sphere over time, the axes that they move to, and the spectra of the weights that move them."""

    title: str
    times: Float[np.ndarray, "m"]
    points: Float[np.ndarray, "m n d"]
    mass: Float[np.ndarray, "n"]
    axes: Sequence[Axis] = ()
    spectra: Spectra | None = None


@dataclass(frozen=True, eq=False)
class Grid:
    """A number for every cell of a grid, rows from above; signed: positive and negative in two colours."""

    title: str
    values: Sequence[Sequence[float]]
    row: str
    column: str
    signed: bool = False


@dataclass(frozen=True, eq=False)
class Bars:
    """Named shares between 0 and 1."""

    title: str
    values: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Tracks:
    """Paths of points in the unit disc, each a list of places (x, y)."""

    title: str
    tracks: Sequence[Sequence[Sequence[float]]]


@dataclass(frozen=True, eq=False)
class Trend:
    """A row of numbers as a line of a few pixels inside a table; None where there is no number."""

    values: Sequence[float | None]

    @property
    def known(self) -> list[tuple[int, float]]:
        """The finite numbers with their places."""
        return [(i, v) for i, v in enumerate(self.values) if v is not None and math.isfinite(v)]


Figure = Lines | PhaseMap | Portrait | Spectra | Grid | Bars | Tracks | Trend


def caption(figure: Figure) -> str:
    """The figure in words, for readers who do not see it."""
    if isinstance(figure, Trend):
        known = figure.known
        return f"from {known[0][1]:.3g} to {known[-1][1]:.3g}" if known else ""
    if isinstance(figure, Lines):
        return f"{figure.title}: {figure.y_label} against {figure.x_label}"
    return figure.title
