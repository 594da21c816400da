"""Where a result comes from: schema version, software versions, parameters; nothing that depends on the machine."""

from __future__ import annotations

import hashlib
import json
import platform
from functools import cache
from importlib import metadata
from typing import Any

from torch import Tensor

from metastable._version import __version__
from metastable.errors import InvalidInput

SCHEMA_VERSION = 2
"""Version of the layout of stored paths; a reader refuses files that are newer than itself."""

_LIBRARIES = ("torch", "numpy", "scipy", "numba")


def provenance(parameters: dict[str, Any], seed: int | None) -> dict[str, Any]:
    """The record that every path carries: {schema_version, software, parameters, seed}."""
    return {
        "schema_version": SCHEMA_VERSION,
        "software": dict(_software()),
        "parameters": parameters,
        "seed": seed,
    }


@cache
def _software() -> dict[str, str]:
    """Versions, read once: looking them up takes milliseconds, as long as a small run."""
    return {"metastable": __version__, "python": platform.python_version()} | {
        name: metadata.version(name) for name in _LIBRARIES
    }


def fingerprint(parameters: dict[str, Any]) -> str:
    """SHA-256 of the parameters, the digest of the tokens among them: runs with one fingerprint are one run."""
    try:
        return hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            f"what describes a run must be numbers, strings, lists and dicts of them, got something else: {error}"
        ) from None


def digest(*tensors: Tensor) -> str:
    """SHA-256 of the numbers in tensors."""
    sha = hashlib.sha256()
    for tensor in tensors:
        sha.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return sha.hexdigest()
