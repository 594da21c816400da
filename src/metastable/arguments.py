"""One door for arguments: scalars, names, flags, sequences, functions and places, each refused in one sentence.

Every public function passes what it was given through these checks before it computes anything, so that nonsense
ends as `InvalidInput` with the name of the argument, the value (shortened) and what was expected, and never as an
exception from inside.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
import reprlib
from collections.abc import Callable, Iterable, Sequence, Sized
from typing import Any, TypeVar

import numpy as np

from metastable.errors import InvalidInput

LONGEST = 60
"""Most characters of a value that a sentence shows: a line of a terminal has room for them beside the words."""
LONGEST_LINE = 180
"""Most characters of a line that describes an object."""

MOST_ITEMS = 2**22
"""Most items that are read from an iterator or a range: one that never ends is refused within a second."""

LONGEST_PLACE = 80
"""Most characters of a place in a sentence, which is one line of fewer than 200."""

T = TypeVar("T")

_short = reprlib.Repr()
_short.maxstring = _short.maxother = LONGEST
_short.maxlist = _short.maxtuple = _short.maxdict = _short.maxset = _short.maxarray = 4
_short.maxlevel = 2


def shown(value: Any) -> str:
    """A value in at most LONGEST characters of one line: scalars and short sequences as they are, arrays by shape.

    >>> shown("fast"), shown([1, 2, 3, 4, 5, 6]), shown(np.zeros((3, 2)))
    ("'fast'", '[1, 2, 3, 4, ...]', 'an array of shape (3, 2)')
    """
    try:
        sizes = shape(value)
        if isinstance(sizes, tuple) and len(sizes) > 0 and not isinstance(value, type):
            return f"an array of shape {tuple(int(size) for size in sizes)}"
        text = " ".join(_short.repr(value).split())
    except Exception:  # what a stranger's __repr__ raises is not ours to pass on
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


class OneLine:
    """A result that says what it is in one line: its class and its fields, each shortened by `shown`."""

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={shown(value)}" for name, value in vars(self).items())
        line = f"{type(self).__name__}({told})"
        return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 4]}...)"


def number(
    value: Any,
    name: str,
    *,
    least: float = -math.inf,
    most: float = math.inf,
    above: float | None = None,
    below: float | None = None,
    finite: bool = True,
) -> float:
    """A real number in [least, most] and in (above, below), finite unless said otherwise; no flag, no text.

    Anything that holds exactly one number is one: a numpy or torch scalar, a fraction.

    >>> number(np.float32(0.5), "beta", least=0)
    0.5
    """
    if (
        type(value) is float
        and above is None
        and below is None
        and least <= value <= most
        and abs(value) < math.inf
    ):
        return value
    expected = _range(least, most, above, below)
    if isinstance(value, bool | np.bool_ | str | bytes | bytearray):
        raise InvalidInput(f"{name} must be a number{expected}, got {shown(value)}")
    try:
        if math.prod(getattr(value, "shape", ())) != 1 or getattr(value, "shape", ()):
            raise TypeError
        read = float(value)
    except OverflowError:
        raise InvalidInput(f"{name} must fit into a float, got {shown(value)}") from None
    except Exception:
        raise InvalidInput(f"{name} must be a number{expected}, got {shown(value)}") from None
    if (finite and not math.isfinite(read)) or math.isnan(read):
        raise InvalidInput(f"{name} must be finite{expected.replace(' that is', ' and')}, got {read}")
    inside = least <= read <= most and (above is None or read > above) and (below is None or read < below)
    if not inside:
        raise InvalidInput(f"{name} must be{expected.removeprefix(' that is')}, got {shown(value)}")
    return read


def integer(value: Any, name: str, *, least: int | None = None, most: int | None = None) -> int:
    """A whole number in [least, most]; no flag, no float.

    >>> integer(np.int64(3), "n", least=1)
    3
    """
    if isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} must be an integer, got {shown(value)}")
    try:
        if getattr(value, "shape", ()):
            raise TypeError
        read = operator.index(value)
    except Exception:
        raise InvalidInput(f"{name} must be an integer, got {shown(value)}") from None
    if least is not None and read < least:
        raise InvalidInput(f"{name} must be >= {least}, got {shown(read)}")
    if most is not None and read > most:
        raise InvalidInput(f"{name} must be <= {most}, got {shown(read)}")
    return read


def flag(value: Any, name: str) -> bool:
    """True or False, and nothing that merely counts as such."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidInput(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def choice(value: Any, name: str, options: Iterable[str]) -> str:
    """One of the names.

    >>> choice("chordal", "metric", ("chordal", "geodesic"))
    'chordal'
    """
    known = tuple(options)
    if not (isinstance(value, str) and value in known):
        raise InvalidInput(f"unknown {name} {shown(value)}; choose from {', '.join(known)}")
    return value


def instance(value: Any, name: str, kind: type[T] | tuple[type[T], ...], expected: str) -> T:
    """An object of this kind; `expected` says in words which, such as "a Flow such as SelfAttention"."""
    if not isinstance(value, kind):
        raise InvalidInput(f"{name} must be {expected}, got {_named(value)}")
    return value


def function(value: Any, name: str) -> Callable[..., Any]:
    """Something that can be called."""
    if not callable(value):
        raise InvalidInput(f"{name} must be a function, got {_named(value)}")
    return value


def sequence(value: Any, name: str, kind: type[T] | tuple[type[T], ...], expected: str) -> tuple[T, ...]:
    """A sequence of objects of one kind, not a text and not one of them alone; `expected` names them in plural."""
    single = isinstance(value, str | bytes | dict) or isinstance(value, kind)  # noqa: SIM101
    if single or not isinstance(value, Iterable):
        raise InvalidInput(f"{name} must be a sequence of {expected}, got {_named(value)}")
    try:
        read = items(value)
    except Exception:
        raise InvalidInput(f"{name} must be a sequence of {expected}, got {_named(value)}") from None
    for index, item in enumerate(read):
        if not isinstance(item, kind):
            raise InvalidInput(f"{name} must be a sequence of {expected}, got {_named(item)} at place {index}")
    return read


def numbers(
    value: Any, name: str, *, least: float = -math.inf, increasing: bool = False, length: int | None = None
) -> list[float]:
    """One row of finite numbers >= least, of this length, strictly increasing, where asked.

    >>> numbers((0, 1.5), "times", increasing=True)
    [0.0, 1.5]
    """
    if isinstance(value, str | bytes | dict | set | frozenset) or not isinstance(value, Iterable):
        raise InvalidInput(f"{name} must be one row of numbers, got {shown(value)}")
    try:
        row = np.asarray(value if hasattr(value, "__array__") else items(value))
        if row.size and row.dtype.kind not in "iuf":
            raise TypeError
        row = row.astype(np.float64)
    except Exception:
        raise InvalidInput(f"{name} must be numbers in one row, got {shown(value)}") from None
    if row.ndim != 1:
        raise InvalidInput(f"{name} must be one row of numbers, got {shown(value)}")
    if length is not None and len(row) != length:
        raise InvalidInput(f"{name} must hold {length} numbers, got {len(row)}")
    read = [float(x) for x in row]
    if not all(math.isfinite(x) for x in read):
        raise InvalidInput(f"{name} must be finite, got {shown(read)}")
    if any(x < least for x in read):
        raise InvalidInput(f"{name} must be >= {least:g}, got {shown(read)}")
    if increasing and any(b <= a for a, b in itertools.pairwise(read)):
        raise InvalidInput(f"{name} must be strictly increasing, got {shown(read)}")
    return read


def place(value: Any, name: str) -> str:
    """A place in the file system, as text or as a path object, not empty and without a NUL."""
    try:
        read = os.fspath(value)
    except Exception:
        raise InvalidInput(f"{name} must be a path, got {shown(value)}") from None
    if isinstance(read, bytes) or not read or "\0" in read:
        raise InvalidInput(f"{name} must be a path, got {shown(value)}")
    return read


def told(place: str | os.PathLike[str]) -> str:
    """A place as a sentence names it: the end of it, where it is long."""
    text = os.fspath(place)
    return repr(text if len(text) <= LONGEST_PLACE else f"...{text[3 - LONGEST_PLACE :]}")


def names(value: Any, name: str) -> tuple[str, ...]:
    """A sequence of texts, not one text alone."""
    return sequence(value, name, str, "names")


def array(value: Any) -> np.ndarray:
    """What numpy makes of a value; whatever it raises is the caller's to turn into a sentence."""
    return np.asarray(items(value) if isinstance(value, range) else value)


def shape(value: Any) -> Any:
    """The shape of an array, None for what has none.

    >>> shape(np.zeros((3, 2))), shape([1, 2])
    ((3, 2), None)
    """
    try:
        return getattr(value, "shape", None)
    except Exception:  # a nested tensor has no shape and says so
        return None


def items(value: Iterable[Any]) -> tuple[Any, ...]:
    """What a sequence holds, or an iterator that ends; OverflowError for one that does not seem to."""
    if isinstance(value, Sized) and not isinstance(value, range):
        return tuple(value)
    read = tuple(itertools.islice(value, MOST_ITEMS + 1))
    if len(read) > MOST_ITEMS:
        raise OverflowError
    return read


def _named(value: Any) -> str:
    """Short values as they are, objects by their type."""
    plain = value is None or isinstance(value, bool | int | float | complex | str | np.generic | Sequence)
    sizes = shape(value)
    return shown(value) if plain or (isinstance(sizes, tuple) and len(sizes) > 0) else type(value).__name__


def _range(least: float, most: float, above: float | None, below: float | None) -> str:
    bounds = (
        (">=", None if least == -math.inf else least),
        (">", above),
        ("<=", None if most == math.inf else most),
        ("<", below),
    )
    parts = [f"{sign} {value:g}" for sign, value in bounds if value is not None]
    return f" that is {' and '.join(parts)}" if parts else ""
