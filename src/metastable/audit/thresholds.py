"""`Threshold`: a condition on a number of an audit under which it fails, for machines that decide on it."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass
from typing import Any

from metastable.arguments import OneLine, choice, instance, number, shown
from metastable.errors import InvalidInput

SIGNS = {"<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt}
"""Comparisons that a threshold may ask for."""
_WRITTEN = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(<=|>=|<|>)\s*(\S+)\s*")


@dataclass(frozen=True, repr=False)
class Threshold(OneLine):
    """An audit fails if `name` `sign` `value`; name is a short name, or a path into the JSON (text.tokens)."""

    name: str
    sign: str
    value: float

    def __post_init__(self) -> None:
        instance(self.name, "name", str, "the name of a number")
        choice(self.sign, "sign", SIGNS)
        number(self.value, "value")

    @classmethod
    def read(cls, written: str) -> Threshold:
        """A threshold as it is written on a command line.

        >>> Threshold.read("sink_heads>0.5").value
        0.5
        """
        found = _WRITTEN.fullmatch(instance(written, "threshold", str, "a text such as 'sink_heads>0.5'"))
        try:
            value = math.nan if found is None else float(found.group(3))
        except ValueError:
            value = math.nan
        if found is None or not math.isfinite(value):
            raise InvalidInput(
                f"a threshold is a name, one of < <= > >= and a number, like 'sink_heads>0.5', got {shown(written)}"
            )
        return cls(found.group(1), found.group(2), value)

    def measured(self, known: dict[str, float | None], record: dict[str, Any]) -> float:
        """The number that it is about: from the short names, else from the JSON record."""
        found = known[self.name] if self.name in known else _at(record, self.name)
        if found is None and self.name not in known:
            raise InvalidInput(f"unknown number {shown(self.name)} in a threshold; known are {_listed(known)}")
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise InvalidInput(f"the number {self.name} of a threshold was not measured here, got {shown(found)}")
        return float(found)

    def crossed(self, known: dict[str, float | None], record: dict[str, Any]) -> str | None:
        """A sentence if the audit fails by this threshold, else None."""
        measured = self.measured(known, record)
        if not SIGNS[self.sign](measured, self.value):
            return None
        return f"{self.name} is {measured:.6g}, which is {self.sign} {self.value:g}"


def _at(record: Any, path: str) -> Any:
    """What stands at a dotted path of keys and places in a record; None where there is nothing."""
    for key in path.split("."):
        if isinstance(record, dict) and key in record:
            record = record[key]
        elif isinstance(record, list) and key.isdigit() and int(key) < len(record):
            record = record[int(key)]
        else:
            return None
    return record


def _listed(known: dict[str, float | None], longest: int = 100) -> str:
    said = ""
    for name in known:
        if len(said) + len(name) > longest:
            return f"{said}, ..."
        said += f", {name}" if said else name
    return said
