"""The page of a comparison: what differs, largest first, and where."""

from __future__ import annotations

from typing import Any

from metastable.audit.traffic import HEADS
from metastable.drawing import Grid, svg
from metastable.drawing.shell import compose

ROWS = 40
"""Rows of a table on the page; the JSON beside it has all."""
SHOWN = 1e-6
"""Relative distance of matrices from which a head is listed: less is the rounding of float32."""


def comparison_page(comparison: Any) -> str:
    """A `Comparison` as one offline page."""
    grids = [grid for name in HEADS if (grid := _map(comparison, name)) is not None]
    if comparison.moved:
        for title, part in (("scores: |B - B'| / |B|", "scores"), ("values: |A - A'| / |A|", "values")):
            cells = {(m.layer, m.head): float(getattr(m, part)) for m in comparison.moved}
            grids.append(Grid(title, _rows(cells), "layer", "head"))
    return compose(
        "metastable.audit",
        "compare.html.j2",
        c=comparison,
        sentences=comparison.sentences(),
        changes=comparison.changes[:ROWS],
        moved=[m for m in comparison.moved[:ROWS] if max(m.scores, m.values) > SHOWN],
        maps=[svg(grid) for grid in grids],
    )


def _map(comparison: Any, name: str) -> Grid | None:
    own = [c for c in comparison.changes if c.quantity == HEADS[name] and c.head is not None]
    cells = {(c.layer, c.head): c.difference for c in own if c.layer is not None and c.head is not None}
    return Grid(f"change of {name}", _rows(cells), "layer", "head", signed=True) if cells else None


def _rows(cells: dict[tuple[int, int], float]) -> list[list[float]]:
    layers, heads = (1 + max(place[i] for place in cells) for i in (0, 1))
    return [[cells[l, h] for h in range(heads)] for l in range(layers)]
