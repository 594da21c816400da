"""Matrices and vectors as a person writes them on a command line."""

from __future__ import annotations

import ast
import os
import re
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.errors import InvalidInput, StorageError
from metastable.measure import as_tensor


def parse_matrix(text: Any, d: int | None = None, name: str = "matrix") -> Float[Tensor, "a b"]:
    """A square or rectangular matrix from `diag(2,1)`, `I`, `2.5 I`, `[[1,.5],[0,1]]`, or a `.npy`/`.txt` file.

    `I` needs d; `I3` or `I(3)` says it itself. Nested lists are taken as they are.

    >>> parse_matrix("diag(2, -1)").tolist()
    [[2.0, 0.0], [0.0, -1.0]]
    >>> parse_matrix("2 I", d=2).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    if not isinstance(text, str):
        return _two_dimensional(as_tensor(text, name), name)
    compact = text.strip()
    if found := re.fullmatch(r"diag\((.*)\)", compact):
        return torch.diag(torch.tensor(parse_numbers(found[1], name), dtype=torch.float64))
    if found := re.fullmatch(r"([-+]?[\d.eE+-]*)\s*\*?\s*I\(?(\d*)\)?", compact):
        size = int(found[2]) if found[2] else d
        if size is None:
            raise InvalidInput(f"{name} = {text!r} does not say its dimension; write for example I3")
        try:
            factor = float(found[1] if found[1] not in ("", "-", "+") else found[1] + "1")
        except ValueError:
            raise InvalidInput(f"{name} = {text!r} is not understood; write for example 2.5 I") from None
        return factor * torch.eye(size, dtype=torch.float64)
    if compact.startswith("["):
        try:
            return _two_dimensional(as_tensor(ast.literal_eval(compact), name), name)
        except (ValueError, SyntaxError):
            raise InvalidInput(f"{name} = {text!r} is not a matrix; write for example [[1, .5], [0, 1]]") from None
    if compact.endswith((".npy", ".txt", ".csv")):
        return _two_dimensional(as_tensor(_read_array(compact), name), name)
    raise InvalidInput(
        f"{name} = {text!r} is not understood; write diag(2,1), I, 2 I, [[1,.5],[0,1]], or the name of a .npy file"
    )


def _two_dimensional(matrix: Tensor, name: str) -> Tensor:
    if matrix.ndim != 2:
        raise InvalidInput(f"{name} must be a matrix, got an array of shape {tuple(matrix.shape)}")
    return matrix


def parse_numbers(text: str, name: str = "numbers") -> list[float]:
    """Numbers separated by commas or blanks.

    >>> parse_numbers("1, 2 4")
    [1.0, 2.0, 4.0]
    """
    try:
        return [float(part) for part in re.split(r"[,\s]+", text.strip().strip("[]")) if part]
    except ValueError:
        raise InvalidInput(f"{name} must be numbers separated by commas, got {text!r}") from None


def _read_array(location: str) -> np.ndarray:
    if not os.path.exists(location):
        raise StorageError(f"there is no file {location!r}")
    try:
        if location.endswith(".npy"):
            return np.load(location, allow_pickle=False)
        return np.loadtxt(location, delimiter="," if location.endswith(".csv") else None, ndmin=2)
    except (OSError, ValueError, EOFError) as error:
        raise StorageError(f"{location!r} cannot be read as an array: {error}") from error
