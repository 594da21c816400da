"""What tells one flow or stepper from another, as plain values: the part of a run's fingerprint that is code.

The flows of this package are identified by their names and parameters. For a class that was written elsewhere the
name is not enough: two notebooks may both define `MyFlow`, and a formula may change between two runs. Such an
object is identified by its class, its compiled code (with the functions, closures and plain global values that it
uses), and its attributes. What cannot be read that way (an open file, a network) makes the object unidentified: its
runs work, but never count as the same run as any other, and cannot be stored with `out=` until its `describe` says
what it is.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
import uuid
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.weights import AttentionWeights, Schedule

_LIBRARIES = ("metastable", "torch", "numpy", "scipy", "math", "builtins", "functools", "itertools", "operator")
"""Modules whose functions are known by name."""
_PLAIN = (type(None), bool, int, float, complex, str, bytes)
UNIDENTIFIED = "unidentified"
"""The entry of a description that names what could not be read."""


def identity(thing: Any, ignored: tuple[str, ...] = ()) -> dict[str, Any]:
    """Class, digest and plain parameters of an object whose class was written elsewhere; nothing for our own.

    ignored: attributes that are only memory, such as caches.
    """
    kind = type(thing)
    if ours(kind.__module__):
        return {}
    digest = _Digest()
    for base in kind.__mro__:
        if not ours(base.__module__) and base.__module__ not in ("builtins", "abc", "typing"):
            for name, value in sorted(vars(base).items()):
                if isinstance(value, types.FunctionType) or not name.startswith(("__", "_abc_")):
                    digest.add(name, name)
                    digest.add(value, name)
    attributes = {name: value for name, value in sorted(vars(thing).items()) if name not in ignored}
    for name, value in attributes.items():
        digest.add(name, name)
        digest.add(value, name)
    described: dict[str, Any] = {
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "sha256": digest.hexdigest(),
        "parameters": {k: v for k, v in attributes.items() if isinstance(v, bool | int | float | str)},
    }
    return described | unreadable(*digest.unread) if digest.unread else described


def unreadable(*names: str) -> dict[str, Any]:
    """The entry of a description for attributes that cannot be read: equal to no other, and refused with out=."""
    return {UNIDENTIFIED: {"attributes": list(names), "token": uuid.uuid4().hex}}


def ours(module: str) -> bool:
    """Whether a module is part of this package."""
    return module.partition(".")[0] == "metastable"


def unidentified(description: Any) -> list[str]:
    """Names of what a description (with all it contains) could not read."""
    if isinstance(description, dict):
        own = description.get(UNIDENTIFIED, {}).get("attributes", [])
        return [*own, *(name for value in description.values() for name in unidentified(value))]
    if isinstance(description, list):
        return [name for value in description for name in unidentified(value)]
    return []


def describe_weights(weights: AttentionWeights | Schedule) -> dict[str, Any]:
    """Weights for provenance: their digest always, their entries when they are few."""
    if isinstance(weights, Schedule):
        # A function has no digest; its values have one. Irregular times, so that periodic schedules differ, too.
        knots = [0.0, *weights.breakpoints]
        times = knots + ([] if weights.piecewise_constant else [0.37 * 1.5**k for k in range(-12, 13)])
        name = getattr(weights.function, "__qualname__", type(weights.function).__name__)
        values = [describe_weights(weights(t)) for t in times]
        return {"schedule": name, "times": times, "weights": values}
    digest = hashlib.sha256()
    for tensor in (weights.query, weights.key, weights.value, weights.output, weights.dense_B):
        if tensor is not None:
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.detach().to("cpu", torch.float64).contiguous().numpy().tobytes())
    described: dict[str, Any] = {"d": weights.d, "rank": weights.rank, "sha256": digest.hexdigest()}
    if weights.d <= 16:
        described |= {"V": weights.V.tolist(), "B": weights.B.tolist()}
    return described


class _Digest:
    """SHA-256 of values, collections and code, whatever the order of sets and the process."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._seen: dict[int, int] = {}
        self.unread: list[str] = []

    def hexdigest(self) -> str:
        return self._sha.hexdigest()

    def add(self, value: Any, name: str) -> None:
        """Add a value; what cannot be read is remembered by the name of the attribute that holds it."""
        self._sha.update(type(value).__qualname__.encode())
        if isinstance(value, _PLAIN):
            self._sha.update(repr(value).encode())
        elif isinstance(value, Tensor):
            self.add(value.detach().cpu().numpy(), name)
        elif isinstance(value, np.ndarray | np.generic) and value.dtype != object:
            self._sha.update(f"{value.shape} {value.dtype}".encode() + np.ascontiguousarray(value).tobytes())
        elif isinstance(value, AttentionWeights | Schedule):
            self._sha.update(json.dumps(describe_weights(value), sort_keys=True).encode())
        elif isinstance(value, type | types.ModuleType | types.BuiltinFunctionType | torch.dtype | torch.device):
            self._sha.update(getattr(value, "__qualname__", str(value)).encode())
        elif id(value) in self._seen:
            self._sha.update(str(self._seen[id(value)]).encode())
        else:
            self._seen[id(value)] = len(self._seen)
            self._add_compound(value, name)

    def _add_compound(self, value: Any, name: str) -> None:
        if isinstance(value, set | frozenset):
            self._all(sorted(value, key=repr), name)
        elif isinstance(value, list | tuple):
            self._all(value, name)
        elif isinstance(value, dict | types.MappingProxyType):
            self._all([part for item in value.items() for part in item], name)
        elif isinstance(value, staticmethod | classmethod):
            self.add(value.__func__, name)
        elif isinstance(value, property):
            self._all((value.fget, value.fset), name)
        elif isinstance(value, functools.cached_property):
            self.add(value.func, name)
        elif isinstance(value, functools.partial):
            self._all((value.func, value.args, value.keywords), name)
        elif isinstance(value, types.MethodType):
            self._all((value.__func__, value.__self__), name)
        elif isinstance(value, types.FunctionType):
            self._add_function(value, name)
        elif callable(describe := getattr(value, "describe", None)):
            self._sha.update(json.dumps(describe(), sort_keys=True).encode())
        elif dataclasses.is_dataclass(value):
            self.add(vars(value), name)
        else:
            self.unread.append(name)

    def _all(self, values: Any, name: str) -> None:
        self._sha.update(str(len(values)).encode())
        for value in values:
            self.add(value, name)

    def _add_function(self, function: types.FunctionType, name: str) -> None:
        self._sha.update(f"{function.__module__}.{function.__qualname__}".encode())
        if _known(function.__module__):
            return
        self._all((function.__defaults__, function.__kwdefaults__), name)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if variable != "__class__":
                self.add(cell.cell_contents, f"{name} ({variable})")
        self._add_code(function.__code__, function.__globals__, name)

    def _add_code(self, code: types.CodeType, scope: dict[str, Any], name: str) -> None:
        self._sha.update(code.co_code)
        self._all((code.co_names, code.co_varnames), name)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add_code(constant, scope, name)
            else:
                self.add(constant, name)
        # Of the global names only values and functions count: the rest (results, consoles) is not what a flow is.
        for variable in sorted(set(code.co_names) & scope.keys()):
            value = scope[variable]
            if isinstance(value, (*_PLAIN, Tensor, np.ndarray, np.generic, AttentionWeights, types.FunctionType)):
                self.add(value, name)


def _known(module: str | None) -> bool:
    return (module or "builtins").partition(".")[0] in _LIBRARIES
