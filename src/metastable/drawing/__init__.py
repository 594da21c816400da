"""Figures as data, and what becomes of them: print, an interactive plot, inline SVG, a self-contained page.

Everything here draws numbers that other rooms computed. A figure is described once (`Lines`, `Spectra`, ...);
`draw` prints it, `interactive` and `svg` put it on a page.
"""

import importlib as _importlib
import typing as _typing

from metastable.drawing.figures import (
    Axis,
    Band,
    Bars,
    Eigenvalues,
    Figure,
    Grid,
    Lines,
    MapPanel,
    Maps,
    PhaseMap,
    Portrait,
    Series,
    Spectra,
    Tracks,
    Trend,
    shaded,
)

if _typing.TYPE_CHECKING:
    from metastable.drawing.eigenspaces import dominant_axes, spectra
    from metastable.drawing.frames import snapshots
    from metastable.drawing.inline import svg
    from metastable.drawing.plotted import interactive
    from metastable.drawing.printed import draw

__all__ = [
    "Axis",
    "Band",
    "Bars",
    "Eigenvalues",
    "Figure",
    "Grid",
    "Lines",
    "MapPanel",
    "Maps",
    "PhaseMap",
    "Portrait",
    "Series",
    "Spectra",
    "Tracks",
    "Trend",
    "dominant_axes",
    "draw",
    "interactive",
    "shaded",
    "snapshots",
    "spectra",
    "svg",
]

# matplotlib, plotly and the theory are loaded when something is drawn, not where a figure is described.
_LATER = {
    "dominant_axes": "eigenspaces",
    "draw": "printed",
    "interactive": "plotted",
    "snapshots": "frames",
    "spectra": "eigenspaces",
    "svg": "inline",
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(_importlib.import_module(f"metastable.drawing.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
