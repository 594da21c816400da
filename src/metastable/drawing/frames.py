"""`snapshots`: the tokens of a path at several times, side by side."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from jaxtyping import Integer
from matplotlib.figure import Figure

from metastable.arguments import instance, integer, numbers, place, sequence
from metastable.drawing.canvas import canvas, save
from metastable.drawing.figures import Axis
from metastable.drawing.palette import FRAME, GLOBE, GUIDE, INK, PHASES, RIM, SOFT
from metastable.drawing.tokens import evenly, graticule, place_colours, principal_axes, view_rotation
from metastable.errors import InvalidInput
from metastable.solve import Path

MAX_DRAWN = 4000
"""Of more tokens only every k-th is drawn: dots would cover each other, and a PDF holds every one of them."""
PATIENCE = 0.6
"""Part of the choice of frames that follows time rather than motion: with it the three phases of the default run,
of which the middle one hardly moves, are all seen in six frames."""
PHASE_WORDS = ("grey", "blue", "orange")
"""The colours of `PHASES` in words."""
MERIDIANS = (0, 30, 60, 90, 120, 150)
VIEW = (25.0, 35.0)
"""Elevation and azimuth, in degrees, from which S^2 is seen."""


def snapshots(
    path: Path,
    destination: str | os.PathLike[str],
    *,
    title: str | None = None,
    count: int = 6,
    view: tuple[float, float] = VIEW,
    axes: Sequence[Axis] = (),
) -> tuple[FilePath, ...]:
    """Draw the tokens of a `Path` at `count` of its saved times and write the figure.

    The times are chosen so that the tokens move equally far from one picture to the next. `axes` are directions
    that are marked, such as `dominant_axes` finds.
    destination: a file ending in .png, .pdf or .svg, or a stem, which gives both PNG and PDF. Returns the files.
    d = 2: tokens on the circle, with the mass per direction as rays outside it. d = 3: the sphere seen from `view`
    (elevation, azimuth in degrees), tokens on the far side pale. d > 3: the two leading principal axes of
    all saved tokens inside the unit disc. A token keeps the colour of its place at the first saved time; area is
    proportional to mass. Of more than 4000 tokens every k-th one is drawn.
    """
    instance(path, "path", Path, "a Path such as solve returns")
    destination, count = place(destination, "destination"), integer(count, "count", least=1, most=10**4)
    elevation, azimuth = numbers(view, "view", length=2)
    if title is not None:
        instance(title, "title", str, "words")
    axes = sequence(axes, "axes", Axis, "Axis such as dominant_axes returns")
    if any(len(axis.direction) != path.end.d for axis in axes):
        raise InvalidInput(f"axes must have {path.end.d} coordinates like the tokens")
    if len(path) < 1:
        raise InvalidInput("snapshots need a path with at least one saved time, got none")
    chosen = eventful(path, count)
    frames = [path.measure(int(i)).points.cpu().numpy() for i in chosen]
    times = path.times.cpu().numpy()[chosen]
    return draw_frames(
        frames,
        times,
        path.mass.cpu().numpy(),
        title or _default_title(path),
        destination,
        view=(elevation, azimuth),
        axes=axes,
    )


def draw_frames(
    frames: list[np.ndarray],
    times: np.ndarray,
    mass: np.ndarray,
    title: str,
    destination: str | os.PathLike[str],
    *,
    view: tuple[float, float] = VIEW,
    axes: Sequence[Axis] = (),
) -> tuple[FilePath, ...]:
    """The panels of `snapshots` for given frames (n, d) at given times."""
    columns = min(3, len(frames)) if len(frames) != 4 else 2
    rows = math.ceil(len(frames) / columns)
    d = frames[0].shape[1]
    drawn = slice(None, None, max(1, math.ceil(len(mass) / MAX_DRAWN)))
    colours = place_colours(frames[0])[drawn]
    size = np.clip(mass[drawn] / mass.mean() * 260 / math.sqrt(len(mass)), 1.0, 60.0)
    screen = np.eye(2) if d == 2 else view_rotation(*view)[:2].T if d == 3 else principal_axes(frames, mass)
    with canvas(2.5 * columns, 2.6 * rows + 0.5) as figure:
        for k, (time, x) in enumerate(zip(times, frames, strict=True)):
            axis = figure.add_subplot(rows, columns, k + 1)
            axis.set_title(f"t = {float(time):.3g}", color=INK)
            axis.set_aspect("equal")
            axis.axis("off")
            if d == 2:
                _circle(axis, x, mass, drawn, colours, size)
            elif d == 3:
                _sphere(axis, x[drawn], colours, size, view)
            else:
                _disc(axis, x[drawn] @ screen, colours, size)
            _mark(axis, axes, screen)
        figure.suptitle(title, fontsize=11)
        _footnote(figure, d, axes)
        return save(figure, destination)


def eventful(path: Path, count: int) -> Integer[np.ndarray, "k"]:
    """At most `count` saved times, first and last among them, at equal steps of the way that the tokens have gone.

    A part `PATIENCE` of the steps is in time, so that a phase in which nothing moves is seen, too; where nothing
    ever moves the times are evenly spread.
    """
    few = slice(None, None, max(1, math.ceil(path.end.n / MAX_DRAWN)))
    mass = path.mass[few].cpu().numpy()
    moved, before = [0.0], path.measure(0).points[few].cpu().numpy()
    for index in range(1, len(path)):
        after = path.measure(index).points[few].cpu().numpy()
        moved.append(math.sqrt(float(mass @ np.square(after - before).sum(1)) / mass.sum()))
        before = after
    travelled = np.cumsum(moved)
    if len(path) <= count or not 0 < travelled[-1] < math.inf:
        return evenly(len(path), count)
    times = path.times.cpu().numpy()
    way = (1 - PATIENCE) * travelled / travelled[-1] + PATIENCE * (times - times[0]) / (times[-1] - times[0])
    found = [np.abs(way - part).argmin() for part in np.linspace(0, 1, count)]
    chosen = {0, len(path) - 1, *(int(i) for i in found)}
    while len(chosen) < count:  # a sudden move is one frame: fill the longest gaps in time
        ordered = sorted(chosen)
        start, stop = max(itertools.pairwise(ordered), key=lambda gap: gap[1] - gap[0])
        if stop - start < 2:
            break
        chosen.add((start + stop) // 2)
    return np.array(sorted(chosen))


def _mark(axis: Any, axes: Sequence[Axis], screen: np.ndarray) -> None:
    """A dashed diameter for every marked direction, in the colour of its phase."""
    for marked in axes:
        x, y = np.outer([-1.0, 1.0], marked.direction @ screen).T
        axis.plot(x, y, color=PHASES[marked.phase], linewidth=1.0, linestyle=(0, (4, 3)), zorder=1.5)


def _default_title(path: Path) -> str:
    flow = path.provenance.get("parameters", {}).get("flow", {}) if isinstance(path.provenance, dict) else {}
    name = flow.get("flow", "Tokens") if isinstance(flow, dict) else "Tokens"
    beta = f", β = {flow['beta']:g}" if isinstance(flow, dict) and "beta" in flow else ""
    return f"{name}: {path.end.n} tokens in R^{path.end.d}{beta}"


def _footnote(figure: Figure, d: int, axes: Sequence[Axis]) -> None:
    text = {
        2: "colour: initial angle; rays outside: mass per direction (square-root scale)",
        3: "colour: initial longitude and height; pale: far side of the sphere",
    }.get(d, f"colour: initial direction; projection of R^{d} on its two leading principal axes")
    marked = ", ".join(f"{axis.label} ({PHASE_WORDS[axis.phase]})" for axis in axes)
    figure.supxlabel(f"{text}\ndashed: {marked}" if marked else text, fontsize=7.5, color=SOFT)


def _circle(
    axis: Any, x: np.ndarray, mass: np.ndarray, drawn: slice, colours: np.ndarray, size: np.ndarray
) -> None:
    angle = np.linspace(0, 2 * np.pi, 361)
    axis.plot(np.cos(angle), np.sin(angle), color=RIM, linewidth=0.8, zorder=1)
    axis.scatter(x[drawn, 0], x[drawn, 1], s=size, c=colours, linewidths=0, zorder=3)
    bins = 120
    weight, edges = np.histogram(np.arctan2(x[:, 1], x[:, 0]), bins=bins, range=(-np.pi, np.pi), weights=mass)
    middle = (edges[1:] + edges[:-1]) / 2
    length = 0.45 * np.sqrt(weight)
    for direction, ray in zip(middle, length, strict=True):
        if ray > 0:
            ends = np.array([1.06, 1.06 + ray])
            axis.plot(ends * np.cos(direction), ends * np.sin(direction), color=SOFT, linewidth=1.6, zorder=2)
    axis.set_xlim(-1.5, 1.5)
    axis.set_ylim(-1.5, 1.5)


def _sphere(axis: Any, x: np.ndarray, colours: np.ndarray, size: np.ndarray, view: tuple[float, float]) -> None:
    rotation = view_rotation(*view)
    angle = np.linspace(0, 2 * np.pi, 181)
    axis.fill(np.cos(angle), np.sin(angle), color=GLOBE, zorder=0)
    for ring in graticule(MERIDIANS, 121):
        seen = ring @ rotation.T
        front = np.where(seen[:, 2:3] >= 0, seen[:, :2], np.nan)
        axis.plot(*front.T, color=GUIDE, linewidth=0.5, zorder=1)
    axis.plot(np.cos(angle), np.sin(angle), color=FRAME, linewidth=0.8, zorder=1)
    seen = x @ rotation.T
    front = seen[:, 2] >= 0
    pale = colours.copy()
    pale[:, 3] = 0.18
    axis.scatter(seen[~front, 0], seen[~front, 1], s=size[~front], c=pale[~front], linewidths=0, zorder=2)
    axis.scatter(seen[front, 0], seen[front, 1], s=size[front], c=colours[front], linewidths=0, zorder=3)
    axis.set_xlim(-1.08, 1.08)
    axis.set_ylim(-1.08, 1.08)


def _disc(axis: Any, plane: np.ndarray, colours: np.ndarray, size: np.ndarray) -> None:
    angle = np.linspace(0, 2 * np.pi, 181)
    axis.plot(np.cos(angle), np.sin(angle), color=RIM, linewidth=0.8)
    axis.scatter(plane[:, 0], plane[:, 1], s=size, c=colours, linewidths=0, alpha=0.8)
    axis.set_xlim(-1.08, 1.08)
    axis.set_ylim(-1.08, 1.08)
