"""Figures for papers and one self-contained page: everything here draws numbers that other rooms computed."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metastable.report.snapshots import snapshots

if TYPE_CHECKING:
    from metastable.report.figures import draw, phase_diagram, portrait, spectra
    from metastable.report.page import render, write_report

__all__ = ["draw", "phase_diagram", "portrait", "render", "snapshots", "spectra", "write_report"]

# plotly and jinja2 are loaded when a page is made, not for a picture of a path.
_LATER = dict.fromkeys(("draw", "phase_diagram", "portrait", "spectra"), "figures")
_LATER |= dict.fromkeys(("render", "write_report"), "page")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(f"metastable.report.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
