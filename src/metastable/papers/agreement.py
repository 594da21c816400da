"""The figure of numbers beside what they should be."""

from __future__ import annotations

import numpy as np

from metastable.drawing import Lines, Series
from metastable.papers.claim import Outcome


def agreement_figure(outcome: Outcome, title: str, x_label: str, y_label: str) -> Lines:
    """Numbers against what they should be, in groups "expected LABEL", "measured LABEL", and the line of equals."""
    curves = outcome.curves
    labels = [name.removeprefix("measured ") for name in curves if name.startswith("measured ")]
    dots = [
        Series(
            curves[f"expected {one}"],
            curves[f"measured {one}"],
            one,
            "points",
            colour=i,
            error=curves.get(f"error {one}", ()),
        )
        for i, one in enumerate(labels)
    ]
    places = np.concatenate([curves[f"expected {one}"] for one in labels])
    ends = np.array([min(places.min(), 0.0), max(places.max(), 0.0)])
    equal = Series(ends, ends, "equal", "dashed", colour=len(labels))
    return Lines(title, x_label, y_label, [*dots, equal])
