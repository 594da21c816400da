"""Reference values: the numbers of known encoders, measured once by benchmarks/reference_encoders.py."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from metastable.arguments import OneLine
from metastable.audit.numbers import numbers

STORED = "reference_values.json"
"""The file in this package that holds them."""


@dataclass(frozen=True, eq=False, repr=False)
class ReferenceEncoder(OneLine):
    """One known encoder: its weights by their hash, what it read, and its numbers by short names."""

    name: str
    family: str
    layers: int
    heads: int
    d: int
    weights: dict[str, str]
    """SHA-256 by file."""
    read: str
    """The texts that it was measured on, in words."""
    texts: int
    tokens: int
    values: dict[str, float]

    @classmethod
    def of(cls, name: str, read: str, report: Any) -> ReferenceEncoder:
        """The record of a report on texts."""
        model, text = report.model, report.text
        found = {key: float(f"{value:.6g}") for key, value in numbers(report).items() if value is not None}
        sizes = (model["layers"], model["heads"], model["d"])
        weights = report.provenance["model"]["weights"]
        return cls(name, model["family"], *sizes, weights, read, text.texts, text.tokens, found)


@cache
def reference_encoders() -> tuple[ReferenceEncoder, ...]:
    """All known encoders."""
    stored: list[dict[str, Any]] = json.loads(files(__package__).joinpath(STORED).read_text(encoding="utf-8"))
    return tuple(ReferenceEncoder(**row) for row in stored)


def beside(report: Any) -> list[tuple[str, float | None, list[float | None]]]:
    """Rows (name, this encoder's number, those of the known ones) of what a report and one of them hold."""
    own, known = numbers(report), reference_encoders()
    rows = [(name, value, [r.values.get(name) for r in known]) for name, value in own.items()]
    return [row for row in rows if any(value is not None for value in row[2])]
