"""How every printed figure of metastable looks, and how it is written: no pyplot, no global state."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path as FilePath
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from metastable.arguments import place, told
from metastable.drawing.palette import GRID
from metastable.errors import InvalidInput, StorageError

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "pdf.fonttype": 42,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "mathtext.fontset": "cm",
}
"""Settings of matplotlib inside `canvas`."""
FORMATS = ("png", "pdf", "svg")


@contextmanager
def canvas(width: float = 6.4, height: float = 4.0) -> Iterator[Figure]:
    """A figure in metastable's style; the style holds inside the block only, so finish drawing and save there."""
    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, destination: str | os.PathLike[str], dpi: int = 180) -> tuple[FilePath, ...]:
    """Write a figure; a destination without suffix gives PNG and PDF, with one only that. Returns the files."""
    target = FilePath(place(destination, "destination"))
    suffix = target.suffix.lower().removeprefix(".")
    if suffix and suffix not in FORMATS:
        raise InvalidInput(f"figures are written as {', '.join(FORMATS)}, got the suffix {target.suffix!r}")
    files = [target] if suffix else [target.with_name(f"{target.name}.{kind}") for kind in ("png", "pdf")]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _lay_out(figure, dpi)
        for file in files:
            # The date is left out so that the same numbers give the same bytes.
            metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(file.suffix[1:].lower())
            quick: Any = {"pil_kwargs": {"compress_level": 3}} if file.suffix.lower() == ".png" else {}
            figure.savefig(file, dpi=dpi, metadata=metadata, **quick)
    except OSError as error:
        raise StorageError(f"the figure cannot be written to {told(target)}: {error.strerror}") from error
    return tuple(files)


def _lay_out(figure: Figure, dpi: int) -> None:
    """Find the layout, which is that of every format; `savefig` would draw the figure once more to find it."""
    engine = figure.get_layout_engine()
    if engine is not None and figure.axes:
        figure.set_dpi(dpi)
        engine.execute(figure)
        figure.set_layout_engine("none")
