"""What the description of a figure may hold: words, rows of numbers, arrays of a shape, parts of a kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metastable.arguments import instance, items, number, shown
from metastable.errors import InvalidInput


def words(figure: str, **named: Any) -> None:
    """Every value is a text."""
    for name, value in named.items():
        instance(value, f"{name} of {figure}", str, "words")


def numbers(value: Any, name: str, dimensions: int = 1) -> np.ndarray:
    """An array of real numbers with so many dimensions; NaN, and None for it, where there is no number."""
    try:
        if not hasattr(value, "__len__") or isinstance(value, str | bytes | Mapping | set | frozenset):
            raise TypeError  # what can be read only once would be gone when it is drawn
        given = np.asarray(value if hasattr(value, "__array__") else items(value))
        if given.size and not (given.dtype.kind in "biuf" or (given.dtype.kind == "O" and _real(given))):
            raise TypeError
        read = given.astype(np.float64)
    except Exception:
        raise InvalidInput(f"{name} must be numbers, got {shown(value)}") from None
    if read.ndim != dimensions:
        shape = "one row" if dimensions == 1 else f"an array of {dimensions} dimensions"
        raise InvalidInput(f"{name} must be {shape} of numbers, got {shown(value)}")
    return read


def rows(value: Any, name: str) -> list[Any]:
    """What stands in a sequence, each to be looked at by itself."""
    try:
        if isinstance(value, str | bytes | Mapping | set | frozenset):
            raise TypeError
        return list(items(value))
    except Exception:
        raise InvalidInput(f"{name} must be a sequence, got {shown(value)}") from None


def same_length(name: str, **counted: int) -> None:
    """All counts are one."""
    if len(set(counted.values())) > 1:
        counts = ", ".join(f"{count} {what}" for what, count in counted.items())
        raise InvalidInput(f"{name} needs as many of each, got {counts}")


def marks(value: Any, name: str) -> None:
    """Marks on an axis, place to text, or None."""
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must be a dictionary from place to text, got {shown(value)}")
    for place, text in value.items():
        number(place, f"a place of {name}")
        instance(text, f"a mark of {name}", str, "words")


def _real(values: np.ndarray) -> bool:
    return all(v is None or isinstance(v, float | int | np.floating | np.integer) for v in values.flat)
