"""Drawings printed with matplotlib: PNG and PDF fit for a paper."""

from __future__ import annotations

import os
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.patches import Patch

from metastable.errors import InvalidInput
from metastable.papers.drawing import Drawing, Lines, PhaseMap, Portrait, Series
from metastable.report.canvas import INK, canvas, save
from metastable.report.palette import COLOURS, PHASES, shade
from metastable.report.snapshots import draw_frames
from metastable.theory import spectrum
from metastable.weights import AttentionWeights

LINESTYLES = {"line": "-", "dashed": "--", "dotted": ":", "steps": "-."}


def draw(drawing: Drawing, destination: str | os.PathLike[str]) -> tuple[FilePath, ...]:
    """Print a drawing; a destination without suffix gives PNG and PDF. Returns the files."""
    if isinstance(drawing, Lines):
        return _lines(drawing, destination)
    if isinstance(drawing, PhaseMap):
        return phase_diagram(drawing, destination)
    if isinstance(drawing, Portrait):
        return portrait(drawing, destination)
    raise InvalidInput(f"cannot draw a {type(drawing).__name__}; expected Lines, PhaseMap or Portrait")


def _lines(drawing: Lines, destination: str | os.PathLike[str]) -> tuple[FilePath, ...]:
    crowded = len(drawing.series) > 8
    with canvas(7.6 if crowded else 6.0, 3.9) as figure:
        axis = figure.add_subplot()
        for index, one in enumerate(drawing.series):
            _curve(axis, one, index)
        axis.set_xscale("log" if drawing.log_x else "linear")
        axis.set_yscale("log" if drawing.log_y else "linear")
        if drawing.log_y and drawing.y_floor is not None:
            axis.set_ylim(bottom=drawing.y_floor)
        _label(axis, drawing.title, drawing.x_label, drawing.y_label)
        if crowded:
            axis.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
        else:
            axis.legend()
        return save(figure, destination)


def _curve(axis: Any, one: Series, index: int) -> None:
    colour = shade(one.shade) if one.shade is not None else COLOURS[index % len(COLOURS)]
    x, y = np.asarray(one.x, dtype=float), np.asarray(one.y, dtype=float)
    if one.style == "points":
        axis.plot(x, y, "o", color=colour, markersize=4.5, label=one.label)
    else:
        axis.plot(x, y, LINESTYLES[one.style], color=colour, label=one.label)


def phase_diagram(drawing: PhaseMap, destination: str | os.PathLike[str]) -> tuple[FilePath, ...]:
    """(t, beta) coloured by the nearest of the phases."""
    with canvas(6.0, 3.4) as figure:
        axis = figure.add_subplot()
        edges_t, edges_beta = _edges(drawing.times), np.exp(_edges(np.log(drawing.betas)))
        colours = ListedColormap(PHASES[: len(drawing.labels)])
        norm = BoundaryNorm(np.arange(len(drawing.labels) + 1) - 0.5, len(drawing.labels))
        axis.pcolormesh(edges_t, edges_beta, drawing.phase, cmap=colours, norm=norm)
        axis.set_yscale("log")
        axis.set_yticks(drawing.betas, [f"{b:g}" for b in drawing.betas])
        axis.minorticks_off()
        axis.grid(False)
        _label(axis, drawing.title, "time t", "inverse temperature β")
        handles = [Patch(color=c, label=label) for c, label in zip(PHASES, drawing.labels, strict=False)]
        figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), title="nearest law")
        return save(figure, destination)


def portrait(drawing: Portrait, destination: str | os.PathLike[str], count: int = 6) -> tuple[FilePath, ...]:
    """Tokens at several of the times, side by side."""
    chosen = np.unique(np.linspace(0, len(drawing.times) - 1, min(count, len(drawing.times))).round().astype(int))
    frames = [np.asarray(drawing.points[i], dtype=float) for i in chosen]
    return draw_frames(frames, drawing.times[chosen], np.asarray(drawing.mass), drawing.title, destination)


def spectra(
    w: AttentionWeights, destination: str | os.PathLike[str], title: str | None = None
) -> tuple[FilePath, ...]:
    """Eigenvalues of M = V B^T and of V in the complex plane, the dominant ones filled."""
    s = spectrum(w)
    with canvas(6.0, 3.6) as figure:
        axis = figure.add_subplot()
        for part, label, marker, colour in ((s.M, "M = V Bᵀ", "o", COLOURS[0]), (s.V, "V", "s", COLOURS[1])):
            values = part.eigenvalues.numpy()
            top = np.arange(len(values)) < part.dimension
            axis.plot(
                values.real[~top], values.imag[~top], marker, mfc="none", color=colour, label=label, markersize=8
            )
            axis.plot(
                values.real[top], values.imag[top], marker, color=colour, label=f"{label}, dominant", markersize=8
            )
        axis.axhline(0, color="#aab2bb", linewidth=0.7)
        axis.axvline(0, color="#aab2bb", linewidth=0.7)
        axis.margins(0.15)
        _label(axis, title or "Spectra of M = V Bᵀ and of V", "real part", "imaginary part")
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
