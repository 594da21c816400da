"""The shell of every page: base template, style sheet, numbers as text, a file written whole or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

import numpy as np

from metastable.arguments import told
from metastable.drawing import palette
from metastable.errors import StorageError

SHELL = "metastable.drawing"
NOTHING = "–"
"""What stands in a table where there is no number."""


def compose(room: str, template: str, **content: Any) -> str:
    """A page from a template in the folder `templates` of a room (a package); it extends shell.html.j2.

    The page needs no network. Text is escaped; a template marks what is HTML already with `| safe`.
    """
    from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(room), PackageLoader(SHELL)]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "share": share, "cosine": cosine}
    environment.globals["palette"] = palette
    return environment.get_template(template).render(content)


def number(value: Any, digits: int = 4) -> str:
    """A value of a table in so many digits; words stay, and what is not there is a dash.

    >>> number(-1234.5678), number(3), number(1 + 2j, 2), number(None), number(math.inf)
    ('−1235', '3', '1 ± 2i', '–', '∞')
    """
    if value is None:
        return NOTHING
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, int | np.integer):
        return _minus(str(int(value)))
    if isinstance(value, complex):
        real = number(value.real, digits)
        return real if abs(value.imag) < 1e-9 else f"{real} ± {number(abs(value.imag), max(2, digits - 1))}i"
    if math.isnan(value):
        return NOTHING
    return _minus("∞" if value > 0 else "-∞") if math.isinf(value) else _minus(f"{float(value):.{digits}g}")


def share(value: float | None) -> str:
    """A share in percent."""
    return NOTHING if value is None else f"{value:.0%}"


def cosine(value: float | None) -> str:
    """A cosine in two decimals."""
    return NOTHING if value is None else _minus(f"{round(value, 2) + 0.0:.2f}")  # + 0.0: no "-0.00"


def _minus(text: str) -> str:
    return text.replace("-", "−")


def save_page(
    page: str | None, destination: str | os.PathLike[str], numbers: Mapping[str, Any] | None = None
) -> FilePath:
    """Write a page, and its numbers as JSON beside it (same name, `.json`); where there is no page, only those."""
    target = FilePath(destination)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if page is not None:
            _write(target, page)
        if numbers is not None:
            _write(target.with_suffix(".json"), json.dumps(numbers, indent=1, allow_nan=False))
    except OSError as error:
        raise StorageError(f"the report cannot be written to {told(target)}: {error.strerror}") from error
    return target


def _write(target: FilePath, text: str) -> None:
    if target.exists() and not target.is_file():  # a device or a pipe is written to, not replaced
        target.write_text(text, encoding="utf-8")
        return
    place = FilePath(os.path.realpath(target))
    temporary = place.with_name(f"{place.name}.{os.getpid()}.part")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, place)
