"""Colours that print, that survive colour blindness, and that the printed and the interactive figures share."""

from __future__ import annotations

from matplotlib import colormaps
from matplotlib.colors import to_hex

COLOURS = ("#2457a6", "#c8541b", "#19703e", "#8a3a9c", "#a07800", "#00798c", "#b3261e", "#5b6570")
PHASES = ("#cfd8e3", "#2457a6", "#c8541b")
"""Initial, concentrated, terminal."""
VERDICTS = {"holds": "#19703e", "fails": "#b3261e", "inconclusive": "#8a6100"}


def shade(value: float) -> str:
    """A colour of the scale from light (0, small beta) to dark (1, large beta), never too pale to read."""
    return to_hex(colormaps["viridis_r"](0.08 + 0.87 * min(1.0, max(0.0, value))))
