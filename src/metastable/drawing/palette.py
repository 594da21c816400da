"""Colours that print, that survive colour blindness, and that all figures and pages share."""

from __future__ import annotations

from metastable.drawing.figures import Series

COLOURS = ("#2457a6", "#c8541b", "#19703e", "#8a3a9c", "#a07800", "#00798c", "#b3261e", "#5b6570")
PHASES = ("#cfd8e3", "#2457a6", "#c8541b")
"""Initial, concentrated, terminal."""
VERDICTS = {"holds": "#19703e", "fails": "#b3261e", "inconclusive": "#8a6100", "open": "#2457a6"}
TERMINAL_VERDICTS = {"holds": "green", "fails": "red", "inconclusive": "yellow", "open": "blue"}
"""The same in the names of a terminal's own colours, which are readable on its background, whatever that is."""
INK, SOFT = "#1f2933", "#8a94a0"
"""Words; words of less weight in print."""
FRAME, RIM, GUIDE, GRID = "#aab2bb", "#c8cdd3", "#d5dae0", "#e3e6ea"
"""Lines that are no data, from dark to pale: axes and outlines, circles, circles of latitude, grids."""
SIGNED = "RdBu_r"
"""Scale of signed numbers in matplotlib and plotly: blue below zero, red above."""
UNSIGNED = "viridis_r"
"""Scale of numbers >= 0 in both: light at zero, dark at the largest."""
BAND = "#e4ecf7"
"""A stretch of an axis behind the curves."""
GLOBE = "#f6f7f9"
"""The ball inside its outline, and the page behind its cards."""


def shade(value: float) -> str:
    """A colour of the scale from light (0, small beta) to dark (1, large beta), never too pale to read."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return str(to_hex(colormaps["viridis_r"](0.08 + 0.87 * min(1.0, max(0.0, value)))))


def colour_of(series: Series, place: int) -> str:
    """The colour of a series that stands at `place` in its figure."""
    if series.shade is not None:
        return shade(series.shade)
    return COLOURS[(place if series.colour is None else series.colour) % len(COLOURS)]
