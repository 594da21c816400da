"""The type checker behind the shape checks: beartype, for which an int is a float, as for everybody else."""

from collections.abc import Callable
from typing import Any, Self

from beartype import BeartypeConf, beartype

seen: set[str] = set()
"""Modules in which something was checked."""
_check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def checked(thing: Callable[..., Any]) -> Callable[..., Any]:
    """Check the arguments and results of a function, or the fields of a class.

    The result `Self` of a method is left out: methods come one by one, without the class that it stands for.
    """
    seen.add(thing.__module__)
    if thing.__annotations__.get("return") in ("Self", Self):
        del thing.__annotations__["return"]
    return _check(thing)
