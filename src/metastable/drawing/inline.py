"""Figures as inline SVG: no script, no network, sharp at every size."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from metastable.arguments import choice, flag, instance, number
from metastable.drawing.figures import Bars, Figure, Grid, Lines, Series, Spectra, Tracks, Trend, caption
from metastable.drawing.palette import BAND, COLOURS, FRAME, GRID, GUIDE, colour_of
from metastable.errors import InvalidInput

Place = tuple[float, float]
FIRST, SECOND = COLOURS[:2]
DASHES = {"dashed": "4 3", "dotted": "1 3", "steps": "6 2 1 2"}
SHOWN = 1e-3
"""Eigenvalues below this share of the frame would all lie on one dot at 0 (most of a low-rank matrix's do)."""
JUMP = 0.4
"""A token that went farther than this share of the picture between two frames is not joined by a line."""


def svg(figure: Figure, **options: Any) -> str:
    """The figure as an <svg> element; `label` says to a screen reader what it shows.

    Further options: `width`, `height` of Lines and Trend, `heading` (False leaves the title of Lines out), `size`
    of Spectra, Tracks and the cells of a Grid, all in pixels.

    >>> svg(Trend([1.0, 2.0]))[:34]
    '<svg class="spark" viewBox="0 0 76'
    """
    known = list(inspect.signature(_svg.dispatch(type(figure))).parameters)[1:]
    for name, value in options.items():
        choice(name, f"option of {type(figure).__name__}", known)
        if name == "label":
            instance(value, name, str, "words")
        elif name == "heading":
            flag(value, name)
        else:
            number(value, name, above=0)
    return _svg(figure, **options)


@singledispatch
def _svg(figure: Figure) -> str:
    expected = "Lines, Spectra, Grid, Bars, Tracks or Trend"
    raise InvalidInput(f"cannot draw a {type(figure).__name__} as SVG; expected {expected}")


def legend(figure: Lines) -> str:
    """The named series and bands with their colours, as HTML."""
    named = [(colour_of(one, i), one.label) for i, one in enumerate(figure.series)]
    named += [(BAND, band.label) for band in figure.bands]
    return "".join(
        f'<span class="key"><i style="background:{colour}"></i>{escape(label)}</span>'
        for colour, label in named
        if label
    )


@_svg.register
def _trend(figure: Trend, *, width: int = 76, height: int = 20) -> str:
    """A small line; the last value is marked."""
    known = figure.known
    if not known:
        return ""
    low, high = min(v for _, v in known), max(v for _, v in known)
    span = high - low or 1.0
    step = (width - 6) / max(len(figure.values) - 1, 1)
    places = [(3 + i * step, height - 4 - (height - 8) * (v - low) / span) for i, v in known]
    return (
        _open(width, height, caption(figure), "spark")
        + _line(places, FIRST, width=1.4)
        + _dot(places[-1], 2, f'fill="{FIRST}"')
        + "</svg>"
    )


@_svg.register
def _lines(figure: Lines, *, width: int = 290, height: int = 168, heading: bool = True, label: str = "") -> str:
    """Curves with grid lines at the marks of the y axis."""
    left, right = (54 if figure.y_label else 40), width - 14
    top = 22 if heading else 10
    bottom = height - 10 - 14 * bool(figure.x_ticks) - 14 * bool(figure.x_label)
    curves = [_scaled(one, figure) for one in figure.series]
    xs, ys = ([point[i] for curve in curves for point in curve] for i in (0, 1))
    x_ticks = _ticks(figure.x_ticks, xs, figure.log_x)
    y_ticks = _ticks(figure.y_ticks, ys, figure.log_y)
    across, down = _scale([*x_ticks, *xs], left + 6, right), _scale([*y_ticks, *ys], bottom, top)

    parts = [_open(width, height, label or caption(figure))]
    if heading:
        parts.append(_text(left, 13, figure.title, "label"))
    for band in figure.bands:
        begin, end = (across(_at(x, figure.log_x)) for x in (band.left, band.right))
        parts.append(f'<path d="M{begin:.1f} {top}H{end:.1f}V{bottom}H{begin:.1f}Z" fill="{BAND}"/>')
    for x, text in (figure.moments or {}).items():
        place = across(_at(x, figure.log_x))
        parts.append(f'<path d="M{place:.1f} {top}V{bottom}" stroke="{FRAME}" stroke-dasharray="1 3"/>')
        parts.append(_text(place + 2, top + 9, text, "tick"))
    for y, text in y_ticks.items():
        parts.append(f'<path d="M{left} {down(y):.1f}H{right}" stroke="{GRID}"/>')
        parts.append(_text(left - 4, down(y) + 4, text, "tick", "end"))
    if figure.x_ticks:
        parts += [_text(across(x), bottom + 17, text, "tick", "middle") for x, text in x_ticks.items()]
    for i, (one, curve) in enumerate(zip(figure.series, curves, strict=True)):
        places = [(across(x), down(y)) for x, y, _ in curve]
        parts += _curve(one.style, places, [hollow for _, _, hollow in curve], colour_of(one, i))
    middle, centre = (left + right) / 2, (top + bottom) / 2
    parts.append(_text(middle, height - 5, figure.x_label, "tick", "middle"))
    if figure.y_label:
        turned = f' transform="rotate(-90 12 {centre:g})"'
        parts.append(_text(12, centre, figure.y_label, "label", "middle", turned))
    return "".join(parts) + "</svg>"


def _scaled(one: Series, figure: Lines) -> list[tuple[float, float, bool]]:
    """The known points of a series, and which are hollow; logarithms where the axis is logarithmic."""
    x, y = np.asarray(one.x, dtype=float), np.asarray(one.y, dtype=float)
    hollow = np.asarray(one.hollow, dtype=bool) if one.hollow else np.zeros(len(x), dtype=bool)
    with np.errstate(all="ignore"):
        x, y = (np.log10(x) if figure.log_x else x), (np.log10(y) if figure.log_y else y)
    if figure.log_y and figure.y_floor is not None:
        y = np.maximum(y, math.log10(figure.y_floor))
    known = np.isfinite(x) & np.isfinite(y)
    return list(zip(x[known].tolist(), y[known].tolist(), hollow[known].tolist(), strict=True))


def _at(x: float, logarithmic: bool) -> float:
    """A place of the axis in its own coordinate."""
    return math.log10(x) if logarithmic else x


def _ticks(given: Mapping[float, str] | None, values: Sequence[float], logarithmic: bool) -> dict[float, str]:
    if given is not None:
        return {math.log10(v) if logarithmic else v: text for v, text in given.items()}
    ends = sorted({min(values, default=0.0), max(values, default=1.0)})
    return {v: f"{10**v if logarithmic else v:.2g}" for v in ends}


def _scale(values: Sequence[float], first: float, last: float) -> Callable[[float], float]:
    """The affine map that takes the smallest value to `first` and the largest to `last`."""
    low, high = min(values), max(values)
    return lambda v: first + (last - first) * (v - low) / ((high - low) or 1.0)


def _curve(style: str, places: Sequence[Place], hollow: Sequence[bool], colour: str) -> list[str]:
    if style == "points":
        return [_dot(place, 3, f'fill="{colour}"') for place in places]
    parts = [_line(places, colour, DASHES.get(style, ""), 0.6 if style in DASHES else 1.0)]
    if style == "marked":
        for place, empty in zip(places, hollow, strict=True):
            parts.append(_dot(place, 3, f'fill="{"#fff" if empty else colour}" stroke="{colour}"'))
    return parts


@_svg.register
def _spectra(figure: Spectra, *, size: int = 152, label: str = "") -> str:
    """Eigenvalues in the complex plane, the dominant ones ringed; the frame reaches to the number in its corner."""
    whole = 1.08 * max((abs(z) for part in figure.parts for z in part.values), default=1.0) or 1.0
    centre, reach = figure.window or (0.0, whole)
    middle = size / 2

    def place(z: complex) -> Place:
        return middle * (1 + (z.real - centre) / reach), middle * (1 - z.imag / reach)

    def inside(z: complex) -> bool:
        return abs(z.real - centre) <= reach and abs(z.imag) <= reach

    parts = [_open(size, size + 18, label or figure.title)]
    upright = f"M{place(0j)[0]:.1f} 0V{size}" if inside(0j) else ""
    frame = f"M0.5 0.5H{size - 0.5}V{size - 0.5}H0.5Z"
    parts.append(f'<path d="{frame}M0 {middle}H{size}{upright}" stroke="{GUIDE}" fill="none"/>')
    for part, colour in zip(figure.parts, COLOURS, strict=False):
        shown = [z for z in part.values if abs(z) > SHOWN * reach and inside(z)]
        parts += [_dot(place(z), 1.7, f'fill="{colour}" opacity="0.6"') for z in shown]
        ringed = [z for z, top in zip(part.values, part.dominant, strict=True) if top and inside(z)]
        parts += [_dot(place(z), 5, f'fill="none" stroke="{colour}"') for z in ringed]
    if figure.window is None:
        parts.append(_text(size - 2, 11, f"±{reach:.2g}", "tick", "end"))
    else:
        parts.append(_text(4, size - 5, f"{centre - reach:.3g}", "tick"))
        parts.append(_text(size - 4, size - 5, f"{centre + reach:.3g}", "tick", "end"))
    parts.append(_text(middle, size + 14, figure.title, "label", "middle"))
    return "".join(parts) + "</svg>"


@_svg.register
def _grid(figure: Grid, *, size: int = 20) -> str:
    """Darker is larger; of signed numbers the negative ones are orange."""
    top = max((abs(v) for row in figure.values for v in row if math.isfinite(v)), default=1.0) or 1.0
    columns = max(len(row) for row in figure.values)
    left, head = 26, 16
    cell = max(7, min(size, 460 // columns))
    below = head + len(figure.values) * cell
    name = f"{figure.title} by {figure.row} and {figure.column}"
    parts = [_open(max(left + columns * cell + 4, 310), below + 33, name)]
    parts.append(_text(left, 11, figure.title, "label"))
    for i, row in enumerate(figure.values):
        y = head + i * cell
        parts.append(_text(left - 5, y + cell * 0.7, str(i), "tick", "end"))
        for j, value in enumerate(row):
            colour = SECOND if figure.signed and value < 0 else FIRST
            share = min(1.0, abs(value) / top)
            said = f"{figure.row} {i}, {figure.column} {j}: {value:.4g}"
            parts.append(
                f'<g class="cell"><rect x="{left + j * cell}" y="{y}" width="{cell - 1}" height="{cell - 1}" '
                f'fill="{colour}" fill-opacity="{0.06 + 0.94 * share:.3f}"><title>{said}</title></rect>'
                f"{_text(left, below + 28, said, 'label value')}</g>"
            )
    note = f"{figure.column}s across, {figure.row}s down; darkest {top:.3g}"
    return "".join(parts) + _text(left, below + 13, note, "tick") + "</svg>"


@_svg.register
def _bars(figure: Bars, *, width: int = 420, row: int = 22) -> str:
    """Horizontal bars between 0 and 1 with their numbers."""
    parts = [_open(width, row * len(figure.values) + 4, figure.title)]
    for i, (name, value) in enumerate(figure.values.items()):
        y, length = i * row, (width - 200) * max(0.0, min(1.0, value))
        parts.append(_text(140, y + 15, name, "label", "end"))
        parts.append(f'<rect x="148" y="{y + 4}" width="{length:.1f}" height="14" fill="{FIRST}" rx="2"/>')
        parts.append(_text(154 + length, y + 15, f"{value:.2f}", "tick"))
    return "".join(parts) + "</svg>"


@_svg.register
def _tracks(figure: Tracks, *, size: int = 168) -> str:
    """Paths in the unit disc; dots mark their ends."""
    middle, radius = size / 2, size / 2 - 4
    parts = [_open(size, size, figure.title)]
    parts.append(_dot((middle, middle), radius, f'fill="none" stroke="{GUIDE}"'))
    for track in figure.tracks:
        places = [(middle + radius * x, middle - radius * y) for x, y in track]
        parts += [_line(piece, FIRST, opacity=0.35, width=0.9) for piece in _pieces(places, JUMP * size)]
        parts.append(_dot(places[-1], 2.6, f'fill="{SECOND}" fill-opacity="0.75"'))
    return "".join(parts) + "</svg>"


def _pieces(places: Sequence[Place], reach: float) -> list[list[Place]]:
    pieces = [[places[0]]]
    for before, place in pairwise(places):
        if math.dist(before, place) > reach:
            pieces.append([])
        pieces[-1].append(place)
    return [piece for piece in pieces if len(piece) > 1]


def _open(width: float, height: float, label: str, kind: str = "") -> str:
    named = f'class="{kind}" ' if kind else ""
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg {named}{size} role="img" aria-label="{escape(label)}">'


def _text(x: float, y: float, text: str, kind: str, anchor: str = "start", more: str = "") -> str:
    if not text:
        return ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}"{more}>{escape(text)}</text>'


def _dot(place: Place, radius: float, style: str) -> str:
    return f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{radius:g}" {style}/>'


def _line(places: Sequence[Place], colour: str, dash: str = "", opacity: float = 1.0, width: float = 1.8) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    style = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" '
        f'stroke-opacity="{opacity}" stroke-linejoin="round"{style}/>'
    )
