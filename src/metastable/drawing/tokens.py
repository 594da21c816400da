"""What every picture of tokens needs: which frames, their colours, their principal axes, the globe and its view."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Integer

LATITUDES = (-60, -30, 0, 30, 60)
"""Circles of latitude of the drawn globe, in degrees."""


def evenly(total: int, count: int) -> Integer[np.ndarray, "k"]:
    """At most `count` of the numbers 0 ... total - 1, evenly spread, first and last among them."""
    return np.unique(np.linspace(0, total - 1, min(count, total)).round().astype(int))


def place_colours(points: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n 4"]:
    """One RGBA colour per token from its initial direction: the hue is the angle in the first two coordinates."""
    from matplotlib import colormaps

    hue = (np.arctan2(points[:, 1], points[:, 0]) / (2 * np.pi)) % 1.0
    colours = colormaps["hsv"](hue)
    # Full hsv is glaring on white: darken towards the ink, and by height where there is a third coordinate.
    shade = 0.82 if points.shape[1] < 3 else 0.82 + 0.12 * points[:, 2:3]
    colours[:, :3] = np.clip(colours[:, :3] * shade, 0, 1)
    return colours


def principal_axes(
    frames: Sequence[Float[np.ndarray, "n d"]], mass: Float[np.ndarray, "n"], count: int = 2
) -> Float[np.ndarray, "d k"]:
    """The leading `count` eigenvectors (d, count) of the second moment of all frames together."""
    moment = sum((x * mass[:, None]).T @ x for x in frames)
    return np.linalg.eigh(moment)[1][:, ::-1][:, :count]


def view_rotation(elevation: float, azimuth: float) -> Float[np.ndarray, "3 3"]:
    """Rows: right, up and towards the viewer, for a viewer at these angles (degrees) in S^2."""
    e, a = math.radians(elevation), math.radians(azimuth)
    towards = np.array([math.cos(e) * math.cos(a), math.cos(e) * math.sin(a), math.sin(e)])
    right = np.array([-math.sin(a), math.cos(a), 0.0])
    return np.stack([right, np.cross(towards, right), towards])


def graticule(longitudes: Sequence[float], samples: int) -> list[Float[np.ndarray, "m 3"]]:
    """Circles of latitude, and meridians at these longitudes (degrees), as closed curves of so many points."""
    angle = np.linspace(0, 2 * np.pi, samples)
    rings = []
    for latitude in np.radians(LATITUDES):
        radius, height = math.cos(latitude), np.full_like(angle, math.sin(latitude))
        rings.append(np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=1))
    for longitude in np.radians(longitudes):
        across = np.cos(angle)
        rings.append(np.stack([across * math.cos(longitude), across * math.sin(longitude), np.sin(angle)], axis=1))
    return rings
