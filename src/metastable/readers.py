"""Weights and tokens as a person gives them: words on a command line, entries of a config, files."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import tomllib
import zipfile
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable import sphere
from metastable.arguments import choice, integer, number, place, shown
from metastable.errors import InvalidInput, StorageError
from metastable.measure import Measure, as_tensor
from metastable.weights import AttentionWeights

MOST_DIMENSIONS = 1 << 15
"""Largest dimension of a matrix that is written in words: eight gigabytes."""
_LATTICES = {"equispaced": (2, sphere.equispaced), "fibonacci": (3, sphere.fibonacci)}


def parse_matrix(text: Any, d: int | None = None, name: str = "matrix") -> Float[Tensor, "a b"]:
    """A square or rectangular matrix from `diag(2,1)`, `I`, `2.5 I`, `[[1,.5],[0,1]]`, or a `.npy`/`.txt` file.

    `I` needs d; `I3` or `I(3)` says it itself. Nested lists are taken as they are.

    >>> parse_matrix("diag(2, -1)").tolist()
    [[2.0, 0.0], [0.0, -1.0]]
    >>> parse_matrix("2 I", d=2).tolist()
    [[2.0, 0.0], [0.0, 2.0]]
    """
    size = None if d is None else integer(d, "d", least=1, most=MOST_DIMENSIONS)
    if not isinstance(text, str):
        return _two_dimensional(as_tensor(text, name), name)
    compact = text.strip()
    if found := re.fullmatch(r"diag\((.*)\)", compact):
        diagonal = torch.tensor(parse_numbers(found[1], name), dtype=torch.float64)
        return _two_dimensional(torch.diag(diagonal), name)
    if found := re.fullmatch(r"([-+]?[\d.eE+-]*)\s*\*?\s*I\(?(\d*)\)?", compact):
        if found[2]:
            size = integer(int(found[2][:20]), f"the dimension of {name}", least=1, most=MOST_DIMENSIONS)
        if size is None:
            raise InvalidInput(f"{name} = {shown(text)} does not say its dimension; write for example I3")
        try:
            factor = float(found[1] if found[1] not in ("", "-", "+") else found[1] + "1")
        except ValueError:
            raise InvalidInput(f"{name} = {shown(text)} is not understood; write for example 2.5 I") from None
        return factor * torch.eye(size, dtype=torch.float64)
    if compact.startswith("["):
        try:
            return _two_dimensional(as_tensor(ast.literal_eval(compact), name), name)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            raise InvalidInput(
                f"{name} = {shown(text)} is not a matrix; write for example [[1, .5], [0, 1]]"
            ) from None
    if compact.endswith((".npy", ".txt", ".csv")):
        return _two_dimensional(as_tensor(_read_array(compact), name), name)
    raise InvalidInput(
        f"{name} = {shown(text)} is not understood; write diag(2,1), I, 2 I, [[1,.5],[0,1]], or a .npy file"
    )


def parse_numbers(text: str, name: str = "numbers") -> list[float]:
    """Numbers separated by commas or blanks.

    >>> parse_numbers("1, 2 4")
    [1.0, 2.0, 4.0]
    """
    if not isinstance(text, str):
        raise InvalidInput(f"{name} must be numbers separated by commas, got {shown(text)}")
    try:
        return [float(part) for part in re.split(r"[,\s]+", text.strip().strip("[]")) if part]
    except ValueError:
        raise InvalidInput(f"{name} must be numbers separated by commas, got {shown(text)}") from None


def parse_count(text: Any, name: str = "n") -> int:
    """A whole number as a person writes it: 600, 1e6, 2.5e3.

    >>> parse_count("1e6")
    1000000
    """
    try:
        value = float(text) if isinstance(text, str) else number(text, name)
        if not (math.isfinite(value) and value == int(value)):
            raise ValueError
    except ValueError:
        raise InvalidInput(f"{name} must be a whole number such as 600 or 1e6, got {shown(text)}") from None
    return int(text) if isinstance(text, str) and text.strip().lstrip("+-").isdigit() else int(value)


def weights_from(V: Any, B: Any, d: int | None = None) -> AttentionWeights:
    """The head (V, B) of two matrices as `parse_matrix` reads them; an `I` takes its dimension from the other one.

    >>> weights_from("diag(2, 1)", "I").B.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    size = d
    for name, text in (("V", V), ("B", B)):
        try:
            size = int(parse_matrix(text, size, name).shape[0])
        except InvalidInput:
            continue
    return AttentionWeights(V=parse_matrix(V, size, "V"), B=parse_matrix(B, size, "B"))


def read_weights(file: str | None, V: Any = None, B: Any = None, d: int | None = None) -> AttentionWeights:
    """The head from a file, from words, or from both (words win); the three-phase example when nothing is given."""
    given: dict[str, Any] = read_matrices(file) if file is not None else {}
    given |= {name: text for name, text in (("V", V), ("B", B)) if text is not None}
    if not given:
        given = {"V": "diag(1,2)", "B": "diag(4,1)"}
    if "Q" in given and "B" not in given:
        missing = [name for name in ("K", "V") if name not in given]
        if missing:
            raise InvalidInput(f"weights with Q need K and V as well, got only {', '.join(sorted(given))}")
        query, key, value = (parse_matrix(given[name], d, name) for name in ("Q", "K", "V"))
        output = parse_matrix(given["O"], d, "O") if "O" in given else None
        return AttentionWeights.from_qkv(query, key, value, output)
    for name in ("V", "B"):
        if name not in given:
            raise InvalidInput(
                f"the head needs both V and B, got only {', '.join(sorted(given))}; write for example --{name} I"
            )
    return weights_from(given["V"], given["B"], d)


def read_matrices(file: str) -> dict[str, Any]:
    """Matrices by name from a .npz, .json or .toml file; in .toml they may stand under [weights]."""
    file = place(file, "the file of weights")
    if not os.path.exists(file):
        raise StorageError(f"there is no file {shown(file)}")
    try:
        if file.endswith(".npz"):
            with np.load(file, allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        if file.endswith(".json"):
            with open(file) as text:
                record = json.load(text)
        elif file.endswith(".toml"):
            with open(file, "rb") as binary:
                record = tomllib.load(binary)
        else:
            raise InvalidInput(f"weights come from a .npz, .json or .toml file, got {shown(file)}")
    except (OSError, ValueError, EOFError, RecursionError, zipfile.BadZipFile) as error:
        if isinstance(error, InvalidInput):
            raise
        raise StorageError(f"{shown(file)} cannot be read as weights: {shown(str(error))[1:-1]}") from error
    table = record.get("weights", record) if isinstance(record, dict) else record
    if not isinstance(table, dict):
        raise InvalidInput(f"{shown(file)} must hold a table of matrices by name, got {type(table).__name__}")
    return {name: table[name] for name in ("Q", "K", "V", "O", "B") if name in table}


def lattice(law: str, n: int, d: int) -> Float[Tensor, "n d"]:
    """n `equispaced` tokens on the circle, or a `fibonacci` lattice on S^2; refused in another dimension."""
    wanted, nodes = _LATTICES[choice(law, "lattice", _LATTICES)]
    if integer(d, "d") != wanted:
        raise InvalidInput(f"{law} tokens live in dimension {wanted}, but the weights have dimension {shown(d)}")
    return nodes(n)


def read_tokens(law: str, n: int, d: int, seed: int = 0) -> tuple[Measure, bool]:
    """(tokens, whether they are deterministic nodes): uniform random ones, a lattice, or those of a file."""
    if not isinstance(law, str):
        raise InvalidInput(f"tokens must be the name of a law or of a file, got {shown(law)}")
    if law == "uniform":
        return Measure(sphere.uniform(n, d, seed=seed)), False
    if law in _LATTICES:
        return Measure(lattice(law, n, d)), True
    if law.endswith((".npy", ".txt", ".csv")):
        return Measure(parse_matrix(law, name="tokens")), False
    raise InvalidInput(
        f"unknown tokens {shown(law)}; choose from uniform, {', '.join(_LATTICES)}, or name a .npy file"
    )


def _two_dimensional(matrix: Tensor, name: str) -> Tensor:
    if matrix.ndim != 2 or 0 in matrix.shape:
        raise InvalidInput(f"{name} must be a matrix, got an array of shape {tuple(matrix.shape)}")
    return matrix


def _read_array(location: str) -> np.ndarray:
    if not os.path.exists(location):
        raise StorageError(f"there is no file {shown(location)}")
    try:
        if location.endswith(".npy"):
            return np.load(location, allow_pickle=False)
        return np.loadtxt(location, delimiter="," if location.endswith(".csv") else None, ndmin=2)
    except (OSError, ValueError, EOFError) as error:
        raise StorageError(f"{shown(location)} cannot be read as an array: {shown(str(error))[1:-1]}") from error
