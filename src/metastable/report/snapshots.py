"""`snapshots`: the tokens of a path at several times, side by side."""

from __future__ import annotations

import math
import os
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from metastable.errors import InvalidInput
from metastable.report.canvas import INK, SOFT, canvas, save
from metastable.solve import Path

MAX_DRAWN = 4000
VIEW = (25.0, 35.0)
"""Elevation and azimuth, in degrees, from which S^2 is seen."""


def snapshots(
    path: Path,
    destination: str | os.PathLike[str],
    *,
    title: str | None = None,
    count: int = 6,
    view: tuple[float, float] = VIEW,
) -> tuple[FilePath, ...]:
    """Draw the tokens of a `Path` at `count` of its saved times and write the figure.

    destination: a file ending in .png, .pdf or .svg, or a stem, which gives both PNG and PDF. Returns the files.
    d = 2: tokens on the circle, with the mass per direction as rays outside it. d = 3: the sphere seen from `view`
    (elevation, azimuth in degrees), tokens on the far side pale. d > 3: the two leading principal axes of
    all saved tokens inside the unit disc. A token keeps the colour of its place at the first saved time; area is
    proportional to mass. Of more than 4000 tokens every k-th one is drawn.
    """
    if len(path) < 1:
        raise InvalidInput("snapshots need a path with at least one saved time, got none")
    if count < 1:
        raise InvalidInput(f"count must be >= 1, got {count}")
    chosen = np.unique(np.linspace(0, len(path) - 1, min(count, len(path))).round().astype(int))
    frames = [path.measure(int(i)).points.cpu().numpy() for i in chosen]
    times = path.times.cpu().numpy()[chosen]
    return draw_frames(
        frames, times, path.mass.cpu().numpy(), title or _default_title(path), destination, view=view
    )


def draw_frames(
    frames: list[np.ndarray],
    times: np.ndarray,
    mass: np.ndarray,
    title: str,
    destination: str | os.PathLike[str],
    *,
    view: tuple[float, float] = VIEW,
) -> tuple[FilePath, ...]:
    """The panels of `snapshots` for given frames (n, d) at given times."""
    columns = min(3, len(frames)) if len(frames) != 4 else 2
    rows = math.ceil(len(frames) / columns)
    d = frames[0].shape[1]
    drawn = slice(None, None, max(1, math.ceil(len(mass) / MAX_DRAWN)))
    colours = place_colours(frames[0])[drawn]
    size = np.clip(mass[drawn] / mass.mean() * 260 / math.sqrt(len(mass)), 1.0, 60.0)
    axes_basis = None if d <= 3 else principal_axes(frames, mass)
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
                _disc(axis, x[drawn] @ axes_basis, colours, size)
        figure.suptitle(title, fontsize=11)
        _footnote(figure, d)
        return save(figure, destination)


def place_colours(points: np.ndarray) -> np.ndarray:
    """One RGBA colour per token from its initial direction: the hue is the angle in the first two coordinates."""
    from matplotlib import colormaps

    hue = (np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi)) % 1.0
    colours = colormaps["hsv"](hue)
    # Full hsv is glaring on white: darken towards the ink, and by height where there is a third coordinate.
    shade = 0.82 if points.shape[1] < 3 else 0.82 + 0.12 * points[:, 2:3]
    colours[:, :3] = np.clip(colours[:, :3] * shade, 0, 1)
    return colours


def principal_axes(frames: list[np.ndarray], mass: np.ndarray, count: int = 2) -> np.ndarray:
    """The leading `count` eigenvectors (d, count) of the second moment of all frames together."""
    moment = sum((x * mass[:, None]).T @ x for x in frames)
    return np.linalg.eigh(moment)[1][:, ::-1][:, :count]


def _default_title(path: Path) -> str:
    flow = path.provenance.get("parameters", {}).get("flow", {}) if isinstance(path.provenance, dict) else {}
    name = flow.get("flow", "Tokens") if isinstance(flow, dict) else "Tokens"
    beta = f", β = {flow['beta']:g}" if isinstance(flow, dict) and "beta" in flow else ""
    return f"{name}: {path.end.n} tokens in R^{path.end.d}{beta}"


def _footnote(figure: Figure, d: int) -> None:
    text = {
        2: "colour: initial angle; rays outside: mass per direction (square-root scale)",
        3: "colour: initial longitude and height; pale: far side of the sphere",
    }.get(d, f"colour: initial direction; projection of R^{d} on its two leading principal axes")
    figure.supxlabel(text, fontsize=7.5, color=SOFT)


def _circle(
    axis: Any, x: np.ndarray, mass: np.ndarray, drawn: slice, colours: np.ndarray, size: np.ndarray
) -> None:
    angle = np.linspace(0, 2 * np.pi, 361)
    axis.plot(np.cos(angle), np.sin(angle), color="#c8cdd3", linewidth=0.8, zorder=1)
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
    axis.fill(np.cos(angle), np.sin(angle), color="#f6f7f9", zorder=0)
    for ring in _graticule():
        seen = ring @ rotation.T
        front = np.where(seen[:, 2:3] >= 0, seen[:, :2], np.nan)
        axis.plot(*front.T, color="#d5dae0", linewidth=0.5, zorder=1)
    axis.plot(np.cos(angle), np.sin(angle), color="#aab2bb", linewidth=0.8, zorder=1)
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
    axis.plot(np.cos(angle), np.sin(angle), color="#c8cdd3", linewidth=0.8)
    axis.scatter(plane[:, 0], plane[:, 1], s=size, c=colours, linewidths=0, alpha=0.8)
    axis.set_xlim(-1.08, 1.08)
    axis.set_ylim(-1.08, 1.08)


def view_rotation(elevation: float, azimuth: float) -> np.ndarray:
    """Rows: right, up and towards the viewer, for a viewer at these angles (degrees) in S^2."""
    e, a = math.radians(elevation), math.radians(azimuth)
    towards = np.array([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)])
    right = np.array([-math.sin(a), math.cos(a), 0.0])
    return np.stack([right, np.cross(towards, right), towards])


def _graticule() -> list[np.ndarray]:
    angle = np.linspace(0, 2 * np.pi, 121)
    rings = []
    for latitude in np.radians([-60, -30, 0, 30, 60]):
        height = np.full_like(angle, math.sin(latitude))
        radius = math.cos(latitude)
        rings.append(np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=1))
    for longitude in np.radians([0, 30, 60, 90, 120, 150]):
        across = np.cos(angle)
        rings.append(np.stack([across * math.cos(longitude), across * math.sin(longitude), np.sin(angle)], axis=1))
    return rings
