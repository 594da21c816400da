"""Figures as data: what to draw, not how. Claims and audits give these; renderers print them or make pages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Integer

from metastable.arguments import OneLine, choice, flag, instance, integer, number, sequence, shown
from metastable.drawing.described import marks, numbers, rows, same_length, words
from metastable.errors import InvalidInput

STYLES = ("line", "dashed", "dotted", "points", "steps", "marked")


@dataclass(frozen=True, eq=False, repr=False)
class Series(OneLine):
    """One curve y(x) in one of STYLES; "marked" is a line with a dot at every point, hollow where `hollow` says.

    Its colour: by place in the figure; `colour` names another place in the palette; `shade` in [0, 1] is a place on
    the scale from light to dark. A series without a label is not in the legend. error: half the length of an error
    bar at every point.
    """

    x: Any
    y: Any
    label: str
    style: str = "line"
    shade: float | None = None
    colour: int | None = None
    hollow: Sequence[bool] = ()
    error: Any = ()

    def __post_init__(self) -> None:
        words("a series", label=self.label)
        choice(self.style, "style", STYLES)
        x = numbers(self.x, "x")
        same_length(f"series {shown(self.label)}", x=len(x), y=len(numbers(self.y, "y")))
        if self.shade is not None:
            number(self.shade, "shade")
        if self.colour is not None:
            integer(self.colour, "colour", least=0)
        hollow = sequence(self.hollow, "hollow", (bool, np.bool_), "flags")
        if hollow and len(hollow) != len(x):
            raise InvalidInput(f"hollow needs a value for each of the {len(x)} points, got {len(hollow)}")
        if len(error := numbers(self.error, "error")) not in (0, len(x)):
            raise InvalidInput(f"error needs a value for each of the {len(x)} points, got {len(error)}")


def shaded(
    curves: Iterable[tuple[Any, Any]], labels: Sequence[str], style: str = "line", darkest: int | None = None
) -> list[Series]:
    """Curves (x, y) of one family as series from light to dark; `darkest` is the number of the darkest."""
    known = sequence(labels, "labels", str, "words")
    pairs = [rows(pair, "a curve") for pair in rows(curves, "curves")]
    if any(len(pair) != 2 for pair in pairs):
        raise InvalidInput(f"curves must be pairs (x, y), got {shown(pairs)}")
    same_length("a family of curves", curves=len(pairs), labels=len(known))
    end = max(1, len(known) - 1 if darkest is None else integer(darkest, "darkest", least=0))
    named = zip(pairs, known, strict=True)
    return [Series(x, y, label, style, shade=i / end) for i, ((x, y), label) in enumerate(named)]


@dataclass(frozen=True, repr=False)
class Band(OneLine):
    """A stretch of the x axis that is shaded, such as the range of a claim, and its name in the legend."""

    left: float
    right: float
    label: str

    def __post_init__(self) -> None:
        number(self.left, "left")
        number(self.right, "right", least=self.left)
        words("a band", label=self.label)


@dataclass(frozen=True, eq=False, repr=False)
class Lines(OneLine):
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
    bands: Sequence[Band] = ()
    moments: Mapping[float, str] | None = None
    """Vertical lines at places of the x axis, and what is written at them."""

    def __post_init__(self) -> None:
        words("lines", title=self.title, x_label=self.x_label, y_label=self.y_label)
        object.__setattr__(self, "series", sequence(self.series, "series", Series, "series"))
        flag(self.log_x, "log_x")
        flag(self.log_y, "log_y")
        if self.y_floor is not None:
            number(self.y_floor, "y_floor")
        marks(self.x_ticks, "x_ticks")
        marks(self.y_ticks, "y_ticks")
        marks(self.moments, "moments")
        object.__setattr__(self, "bands", sequence(self.bands, "bands", Band, "bands"))


@dataclass(frozen=True, eq=False, repr=False)
class PhaseMap(OneLine):
    """Which phase it is: phase[i, j] indexes `labels`, for beta[i] and time[j]."""

    title: str
    times: Float[np.ndarray, "m"]
    betas: Float[np.ndarray, "k"]
    phase: Integer[np.ndarray, "k m"]
    labels: Sequence[str] = ("initial", "concentrated", "terminal")

    def __post_init__(self) -> None:
        words("a phase map", title=self.title)
        phase = numbers(self.phase, "phase", 2)
        known = sequence(self.labels, "labels", str, "words")
        same_length("the columns of a phase map", times=len(numbers(self.times, "times")), phases=phase.shape[1])
        same_length("the rows of a phase map", betas=len(numbers(self.betas, "betas")), phases=phase.shape[0])
        if not np.isin(phase, np.arange(len(known))).all():
            raise InvalidInput(f"phase must index the {len(known)} labels, got {shown(phase.ravel().tolist())}")


@dataclass(frozen=True, eq=False, repr=False)
class MapPanel(OneLine):
    """One panel of `Maps`: values[i, j] at x[j] and y[i], and curves on top of it."""

    title: str
    values: Float[np.ndarray, "k m"]
    curves: Sequence[Series] = ()

    def __post_init__(self) -> None:
        words("a panel", title=self.title)
        numbers(self.values, "values", 2)
        object.__setattr__(self, "curves", sequence(self.curves, "curves", Series, "series"))


@dataclass(frozen=True, eq=False, repr=False)
class Maps(OneLine):
    """Numbers over a plane in panels, `columns` in a row, on one scale of colours from -largest to largest.

    signed=False: numbers >= 0, from 0 to largest, on the scale from light to dark.
    """

    title: str
    x_label: str
    y_label: str
    x: Float[np.ndarray, "m"]
    y: Float[np.ndarray, "k"]
    panels: Sequence[MapPanel]
    colour: str
    columns: int = 3
    largest: float = 1.0
    signed: bool = True

    def __post_init__(self) -> None:
        flag(self.signed, "signed")
        words("maps", title=self.title, x_label=self.x_label, y_label=self.y_label, colour=self.colour)
        integer(self.columns, "columns", least=1)
        number(self.largest, "largest", above=0.0)
        object.__setattr__(self, "panels", sequence(self.panels, "panels", MapPanel, "panels"))
        across, down = len(numbers(self.x, "x")), len(numbers(self.y, "y"))
        if not (self.panels and across and down):
            raise InvalidInput(f"maps need a panel and places, got {len(self.panels)} panels of {down} x {across}")
        for panel in self.panels:
            height, width = numbers(panel.values, "values", 2).shape
            same_length(f"panel {shown(panel.title)}", columns=width, places=across)
            same_length(f"panel {shown(panel.title)}", rows=height, places=down)


@dataclass(frozen=True, eq=False, repr=False)
class Eigenvalues(OneLine):
    """Eigenvalues of one matrix, and which of them are dominant."""

    label: str
    values: Sequence[complex]
    dominant: Sequence[bool]

    def __post_init__(self) -> None:
        words("eigenvalues", label=self.label)
        values = sequence(self.values, "values", (complex, float, int, np.number), "complex numbers")
        chosen = sequence(self.dominant, "dominant", (bool, np.bool_), "flags")
        same_length(f"the spectrum of {shown(self.label)}", values=len(values), flags=len(chosen))


@dataclass(frozen=True, eq=False, repr=False)
class Spectra(OneLine):
    """Eigenvalues of one or more matrices in the complex plane."""

    title: str
    parts: Sequence[Eigenvalues]
    window: tuple[float, float] | None = None
    """(centre, reach): only real parts in centre ± reach and imaginary parts in ± reach; None shows all."""

    def __post_init__(self) -> None:
        words("spectra", title=self.title)
        if self.window is not None:
            pair = numbers(self.window, "window")
            if len(pair) != 2:
                raise InvalidInput(f"window must be a centre and a reach, got {shown(self.window)}")
            object.__setattr__(
                self, "window", (number(pair[0], "centre"), number(pair[1], "reach of the window", above=0))
            )
        object.__setattr__(self, "parts", sequence(self.parts, "parts", Eigenvalues, "Eigenvalues"))


@dataclass(frozen=True, eq=False, repr=False)
class Axis(OneLine):
    """A direction of R^d that is drawn as a diameter of the sphere, in the colour of a phase (an index)."""

    label: str
    direction: Float[np.ndarray, "d"]
    phase: int

    def __post_init__(self) -> None:
        words("an axis", label=self.label)
        numbers(self.direction, "direction")
        integer(self.phase, "phase", least=0, most=2)


@dataclass(frozen=True, eq=False, repr=False)
class Portrait(OneLine):
    """Tokens on the sphere over time, the axes that they move to, and the spectra of the weights that move them."""

    title: str
    times: Float[np.ndarray, "m"]
    points: Float[np.ndarray, "m n d"]
    mass: Float[np.ndarray, "n"]
    axes: Sequence[Axis] = ()
    spectra: Spectra | None = None

    def __post_init__(self) -> None:
        words("a portrait", title=self.title)
        points = numbers(self.points, "points", 3)
        same_length("a portrait", times=len(numbers(self.times, "times")), frames=points.shape[0])
        same_length("a portrait", masses=len(numbers(self.mass, "mass")), tokens=points.shape[1])
        object.__setattr__(self, "axes", sequence(self.axes, "axes", Axis, "axes"))
        for axis in self.axes:
            same_length(f"axis {shown(axis.label)}", coordinates=len(axis.direction), dimensions=points.shape[2])
        if self.spectra is not None:
            instance(self.spectra, "spectra", Spectra, "Spectra")


@dataclass(frozen=True, eq=False, repr=False)
class Grid(OneLine):
    """A number for every cell of a grid, rows from above; signed: positive and negative in two colours."""

    title: str
    values: Sequence[Sequence[float]]
    row: str
    column: str
    signed: bool = False

    def __post_init__(self) -> None:
        words("a grid", title=self.title, row=self.row, column=self.column)
        for row in rows(self.values, "values"):
            numbers(row, "a row of the grid")
        flag(self.signed, "signed")


@dataclass(frozen=True, eq=False, repr=False)
class Bars(OneLine):
    """Named shares between 0 and 1."""

    title: str
    values: Mapping[str, float]

    def __post_init__(self) -> None:
        words("bars", title=self.title)
        if not isinstance(self.values, Mapping) or not all(isinstance(name, str) for name in self.values):
            raise InvalidInput(f"values of bars must be a dictionary by names, got {shown(self.values)}")
        numbers(list(self.values.values()), "values of bars")


@dataclass(frozen=True, eq=False, repr=False)
class Tracks(OneLine):
    """Paths of points in the unit disc, each a list of places (x, y)."""

    title: str
    tracks: Sequence[Sequence[Sequence[float]]]

    def __post_init__(self) -> None:
        words("tracks", title=self.title)
        for track in rows(self.tracks, "tracks"):
            if rows(track, "a track") and numbers(track, "a track", 2).shape[1] != 2:
                raise InvalidInput(f"a track must be places (x, y), got {shown(track)}")


@dataclass(frozen=True, eq=False, repr=False)
class Trend(OneLine):
    """A row of numbers as a line of a few pixels inside a table; None where there is no number."""

    values: Sequence[float | None]

    def __post_init__(self) -> None:
        numbers(self.values, "values of a trend")

    @property
    def known(self) -> list[tuple[int, float]]:
        """The finite numbers with their places."""
        return [(i, v) for i, v in enumerate(self.values) if v is not None and math.isfinite(v)]


Figure = Lines | PhaseMap | Maps | Portrait | Spectra | Grid | Bars | Tracks | Trend


def caption(figure: Figure) -> str:
    """The figure in words, for readers who do not see it."""
    if isinstance(figure, Trend):
        known = figure.known
        return f"from {known[0][1]:.3g} to {known[-1][1]:.3g}" if known else ""
    if isinstance(figure, Lines):
        return f"{figure.title}: {figure.y_label} against {figure.x_label}"
    return figure.title
