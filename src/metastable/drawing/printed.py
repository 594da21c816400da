"""Figures printed with matplotlib: PNG and PDF fit for a paper."""

from __future__ import annotations

import os
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch

from metastable.arguments import place
from metastable.drawing.canvas import canvas, save
from metastable.drawing.figures import Figure, Lines, Maps, PhaseMap, Portrait, Series, Spectra
from metastable.drawing.frames import draw_frames
from metastable.drawing.palette import BAND, COLOURS, FRAME, INK, PHASES, SIGNED, UNSIGNED, colour_of
from metastable.drawing.tokens import evenly
from metastable.errors import InvalidInput

LINESTYLES = {"line": "-", "dashed": "--", "dotted": ":", "points": "o", "steps": "-.", "marked": "-o"}
MARKERS = ("o", "s", "^", "D")
PANELS = 6
"""Frames of a portrait that stand side by side."""


def draw(figure: Figure, destination: str | os.PathLike[str]) -> tuple[FilePath, ...]:
    """Print a figure; a destination without suffix gives PNG and PDF. Returns the files.

    >>> from metastable.drawing import Lines, Series
    >>> draw(Lines("A line", "x", "y", [Series([0, 1], [1, 2], "a")]), "line.png")  # doctest: +SKIP
    (PosixPath('line.png'),)
    """
    place(destination, "destination")
    if isinstance(figure, Lines):
        return _lines(figure, destination)
    if isinstance(figure, PhaseMap):
        return _phase_map(figure, destination)
    if isinstance(figure, Maps):
        return _maps(figure, destination)
    if isinstance(figure, Portrait):
        return _portrait(figure, destination)
    if isinstance(figure, Spectra):
        return _spectra(figure, destination)
    raise InvalidInput(
        f"cannot draw a {type(figure).__name__}; expected Lines, PhaseMap, Maps, Portrait or Spectra"
    )


def _lines(drawn: Lines, destination: str | os.PathLike[str]) -> tuple[FilePath, ...]:
    crowded = len(drawn.series) > 8
    with canvas(7.6 if crowded else 6.0, 3.9) as figure:
        axis = figure.add_subplot()
        for place, one in enumerate(drawn.series):
            _curve(axis, one, colour_of(one, place))
        for band in drawn.bands:
            axis.axvspan(band.left, band.right, color=BAND, linewidth=0, zorder=0, label=band.label or "_nolegend_")
        for x, text in (drawn.moments or {}).items():
            axis.axvline(x, color=FRAME, linewidth=0.9, linestyle=(0, (1, 2)))
            beside: dict[str, Any] = {
                "xytext": (-2, -3),
                "textcoords": "offset points",
                "rotation": 90,
                "ha": "right",
                "va": "top",
            }
            axis.annotate(text, (x, 1.0), xycoords=("data", "axes fraction"), color=INK, fontsize=7.5, **beside)
        axis.set_xscale("log" if drawn.log_x else "linear")
        axis.set_yscale("log" if drawn.log_y else "linear")
        if drawn.log_y and drawn.y_floor is not None:
            axis.set_ylim(bottom=drawn.y_floor)
        if drawn.x_ticks is not None:
            axis.set_xticks([], minor=True)  # a logarithmic axis would write its own marks over these
            axis.set_xticks(list(drawn.x_ticks), list(drawn.x_ticks.values()))
        if drawn.y_ticks is not None:
            axis.set_yticks([], minor=True)
            axis.set_yticks(list(drawn.y_ticks), list(drawn.y_ticks.values()))
        _label(axis, drawn.title, drawn.x_label, drawn.y_label)
        if crowded:
            axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        elif any(one.label for one in drawn.series):
            axis.legend()
        return save(figure, destination)


def _curve(axis: Any, one: Series, colour: str) -> None:
    x, y = np.asarray(one.x, dtype=float), np.asarray(one.y, dtype=float)
    label = one.label or "_nolegend_"
    axis.plot(x, y, LINESTYLES[one.style], color=colour, markersize=4.5, label=label)
    error = np.asarray(one.error, dtype=float)
    if error.size:
        axis.errorbar(x, y, error, fmt="none", ecolor=colour, elinewidth=1.1, capsize=2.5, label="_nolegend_")
    hollow = np.asarray(one.hollow, dtype=bool)
    if hollow.any():
        axis.plot(x[hollow], y[hollow], "o", color=colour, markerfacecolor="white", markersize=4.5)


def _phase_map(drawn: PhaseMap, destination: str | os.PathLike[str]) -> tuple[FilePath, ...]:
    """(t, beta) coloured by the nearest of the phases."""
    with canvas(6.0, 3.4) as figure:
        axis = figure.add_subplot()
        edges_t, edges_beta = _edges(drawn.times), np.exp(_edges(np.log(drawn.betas)))
        colours = ListedColormap(PHASES[: len(drawn.labels)])
        norm = BoundaryNorm(np.arange(len(drawn.labels) + 1) - 0.5, len(drawn.labels))
        axis.pcolormesh(edges_t, edges_beta, drawn.phase, cmap=colours, norm=norm)
        axis.set_yscale("log")
        axis.set_yticks(drawn.betas, [f"{b:g}" for b in drawn.betas])
        axis.minorticks_off()
        axis.grid(False)
        _label(axis, drawn.title, "time t", "inverse temperature β")
        handles = [Patch(color=c, label=label) for c, label in zip(PHASES, drawn.labels, strict=False)]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), title="phase")
        return save(figure, destination)


def _maps(drawn: Maps, destination: str | os.PathLike[str]) -> tuple[FilePath, ...]:
    """Panels side by side, their curves in ink."""
    columns = min(drawn.columns, len(drawn.panels))
    lines = -(-len(drawn.panels) // columns)
    with canvas(1.2 + 2.2 * columns, 0.7 + 2.1 * lines) as figure:
        axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        edges = _edges(np.asarray(drawn.x, dtype=float)), _edges(np.asarray(drawn.y, dtype=float))
        ink = INK if drawn.signed else COLOURS[1]  # seen on all of the scale
        for axis in axes.flat[len(drawn.panels) :]:
            axis.set_visible(False)
        for axis, panel in zip(axes.flat, drawn.panels, strict=False):
            scale: Any = {"cmap": SIGNED, "vmin": -drawn.largest, "vmax": drawn.largest}
            if not drawn.signed:
                scale |= {"cmap": UNSIGNED, "vmin": 0.0}
            colours = axis.pcolormesh(*edges, panel.values, rasterized=True, **scale)
            for one in panel.curves:
                axis.plot(np.asarray(one.x), np.asarray(one.y), LINESTYLES[one.style], color=ink, linewidth=1.2)
            axis.set_title(panel.title, color=INK, fontsize=8.5)
            axis.grid(False)
            axis.set_xlim(edges[0][[0, -1]])
            axis.set_ylim(edges[1][[0, -1]])
        figure.colorbar(
            colours, ax=axes, label=drawn.colour, extend="both" if drawn.signed else "neither", shrink=0.7
        )
        figure.suptitle(drawn.title, color=INK, fontsize=10)
        figure.supxlabel(drawn.x_label, fontsize=9)
        figure.supylabel(drawn.y_label, fontsize=9)
        return save(figure, destination)


def _portrait(drawn: Portrait, destination: str | os.PathLike[str]) -> tuple[FilePath, ...]:
    """Tokens at several of the times, side by side."""
    chosen = evenly(len(drawn.times), PANELS)
    frames = [np.asarray(drawn.points[i], dtype=float) for i in chosen]
    return draw_frames(frames, drawn.times[chosen], np.asarray(drawn.mass), drawn.title, destination)


def _spectra(drawn: Spectra, destination: str | os.PathLike[str]) -> tuple[FilePath, ...]:
    """Eigenvalues in the complex plane, the dominant ones filled."""
    with canvas(6.0, 3.6) as figure:
        axis = figure.add_subplot()
        for part, marker, colour in zip(drawn.parts, MARKERS, COLOURS, strict=False):
            values, top = np.asarray(part.values), np.asarray(part.dominant, dtype=bool)
            style: Any = {"marker": marker, "color": colour, "markersize": 8, "linestyle": "none"}
            axis.plot(values.real[~top], values.imag[~top], mfc="none", label=part.label, **style)
            axis.plot(values.real[top], values.imag[top], label=f"{part.label}, dominant", **style)
        axis.axhline(0, color=FRAME, linewidth=0.7)
        axis.axvline(0, color=FRAME, linewidth=0.7)
        axis.margins(0.15)
        if drawn.window is not None:
            centre, reach = drawn.window
            axis.set(xlim=(centre - reach, centre + reach), ylim=(-reach, reach))
        _label(axis, drawn.title, "real part", "imaginary part")
        axis.legend()
        return save(figure, destination)


def _label(axis: Any, title: str, x: str, y: str) -> None:
    axis.set_title(title, color=INK)
    axis.set_xlabel(x)
    axis.set_ylabel(y)


def _edges(centres: np.ndarray) -> np.ndarray:
    middle = (centres[1:] + centres[:-1]) / 2
    if len(middle) == 0:
        return np.array([centres[0] - 0.5, centres[0] + 0.5])
    return np.concatenate([[2 * centres[0] - middle[0]], middle, [2 * centres[-1] - middle[-1]]])
