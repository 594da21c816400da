"""What tells one flow, stepper, schedule or event from another: the part of a run's fingerprint that is code.

The flows of this package are identified by their names and parameters. For what was written elsewhere the name is
not enough: two notebooks may both define `MyFlow`, and a formula may change between two runs. Such an object is
identified by its class, its compiled code (with the functions, closures and global values that it uses), and its
attributes; a function likewise. What cannot be read that way (an open file, a compiled network) makes the object
unidentified: its runs work, but never count as the same run as any other, and cannot be stored with `out=` until
its `describe` or `solve(key=)` says what it is.
"""

from __future__ import annotations

import dis
import functools
import hashlib
import json
import sys
import types
import uuid
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.weights import AttentionWeights, OrnsteinUhlenbeck, Schedule

_LIBRARIES = frozenset({"metastable", "torch", "numpy", "scipy", "numba"} | sys.stdlib_module_names)
"""Packages whose functions and classes are known by name; their versions stand in the provenance."""
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
    digest.add_class(kind, kind.__name__)
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


def identify(value: Any, name: str) -> dict[str, Any]:
    """Name and digest of a function, or of whatever else is called `name`; what it reads counts, too.

    >>> identify(lambda t: 2 * t, "rate")["sha256"] == identify(lambda t: 3 * t, "rate")["sha256"]
    False
    """
    digest = _Digest()
    digest.add(value, name)
    named = isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType | type)
    label = value.__qualname__ if named else type(value).__qualname__
    described = {"name": label, "sha256": digest.hexdigest()}
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


def vouched(description: Any, key: str) -> Any:
    """A description in which the caller's word `key` stands for whatever could not be read."""
    if isinstance(description, dict):
        return {
            name: {"attributes": value["attributes"], "key": key} if name == UNIDENTIFIED else vouched(value, key)
            for name, value in description.items()
        }
    return [vouched(value, key) for value in description] if isinstance(description, list) else description


def describe_weights(weights: AttentionWeights | Schedule) -> dict[str, Any]:
    """Weights for provenance: their digest always, their entries when they are few."""
    if isinstance(weights, Schedule):
        own = getattr(weights.function, "describe", None)
        if callable(own) and ours(type(weights.function).__module__):  # it knows all that its values depend on
            return {"schedule": own()}
        # Between any probes there is room for a bump, so what counts is the function itself: its code and all that
        # it reads. The values see what code does not say (a file that it reads, a library that was changed).
        times = [0.0, *weights.breakpoints]
        values = [describe_weights(weights(t)) for t in times]
        probes = [] if weights.piecewise_constant else [_probed(weights, 0.37 * 1.5**k) for k in range(-12, 13)]
        return {
            "schedule": identify(weights.function, "schedule"),
            "times": times,
            "weights": values,
            "probes": hashlib.sha256(json.dumps(probes).encode()).hexdigest(),
        }
    digest = hashlib.sha256()
    for tensor in (weights.query, weights.key, weights.value, weights.output, weights.dense_B):
        if tensor is not None:
            digest.update(str(tuple(tensor.shape)).encode())
            digest.update(tensor.detach().to("cpu", torch.float64).contiguous().numpy().tobytes())
    described: dict[str, Any] = {"d": weights.d, "rank": weights.rank, "sha256": digest.hexdigest()}
    if weights.d <= 16:
        described |= {"V": weights.V.tolist(), "B": weights.B.tolist()}
    return described


def describe_heads(heads: Tensor | OrnsteinUhlenbeck) -> dict[str, Any]:
    """Symmetric matrices of several heads, or the process that they follow, for provenance."""
    if isinstance(heads, OrnsteinUhlenbeck):
        return heads.describe()
    bits = heads.detach().to("cpu", torch.float64).contiguous().numpy().tobytes()
    described: dict[str, Any] = {"shape": list(heads.shape), "sha256": hashlib.sha256(bits).hexdigest()}
    return described | {"D": heads.tolist()} if heads.numel() <= 256 else described


def _probed(schedule: Schedule, t: float) -> str | None:
    """Digest of scheduled weights at time t; None where they are not defined."""
    try:
        return str(describe_weights(schedule(t))["sha256"])
    except Exception:  # a stranger's function, outside the times that it was written for
        return None


class _Digest:
    """SHA-256 of values, collections, objects and code, whatever the order of sets and the process."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._seen: dict[int, tuple[int, Any]] = {}
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
            described = describe_weights(value)
            self.unread += [name] * len(unidentified(described))
            self._sha.update(json.dumps(described, sort_keys=True).encode())
        elif isinstance(value, types.ModuleType | torch.dtype | torch.device | np.dtype | np.ufunc):
            self._sha.update(str(getattr(value, "__name__", value)).encode())
        elif id(value) in self._seen:
            self._sha.update(str(self._seen[id(value)][0]).encode())
        else:
            self._seen[id(value)] = len(self._seen), value  # held, so that no other value gets its id
            try:
                self._add_compound(value, name)
            except Exception:  # whatever a stranger's object raises when it is looked at, or too deep a nesting
                self.unread.append(name)

    def add_class(self, kind: type, name: str) -> None:
        """Add the code of a class, as far as it was written elsewhere."""
        self._sha.update(_label(kind))
        for base in kind.__mro__:
            if not _known(base.__module__):
                for attribute, value in sorted(vars(base).items()):
                    if isinstance(value, types.FunctionType) or not attribute.startswith(("__", "_abc_")):
                        self.add(attribute, attribute)
                        self.add(value, f"{name}.{attribute}")

    def _add_compound(self, value: Any, name: str) -> None:
        if isinstance(value, set | frozenset):
            self._all(sorted(value, key=repr), name)
        elif type(value) in (list, tuple):
            self._all(value, name)
        elif type(value) is dict or isinstance(value, types.MappingProxyType):
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
        elif isinstance(value, types.BuiltinFunctionType):
            self._all((value.__module__, value.__qualname__), name)
            if not isinstance(value.__self__, types.ModuleType | None):
                self.add(value.__self__, name)
        elif isinstance(value, type):
            self.add_class(value, name)
        elif isinstance(wrapped := _wrapped(value), types.FunctionType):
            self._add_function(wrapped, name)
        elif callable(describe := getattr(value, "describe", None)):
            described = describe()
            self.unread += [name] * len(unidentified(described))
            self._sha.update(json.dumps(described, sort_keys=True).encode())
        else:
            self._add_object(value, name)

    def _add_object(self, value: Any, name: str) -> None:
        """Class and state of an object, as pickling would see them; Python refuses where state is hidden in C."""
        reduced = value.__reduce_ex__(4)
        if isinstance(reduced, str):  # a global value, known by its name
            self._sha.update(reduced.encode())
            return
        made, arguments, *state = reduced
        self.add_class(type(value), type(value).__name__)
        self._all([made, *arguments], name)
        for part in state:
            self.add(list(part) if hasattr(part, "__next__") else part, name)

    def _all(self, values: Any, name: str) -> None:
        self._sha.update(str(len(values)).encode())
        for value in values:
            self.add(value, name)

    def _add_function(self, function: types.FunctionType, name: str) -> None:
        self._sha.update(_label(function))
        if _known(function.__module__) and "<" not in function.__qualname__:  # neither local nor a lambda
            return
        self._all((function.__defaults__, function.__kwdefaults__), name)
        for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            if variable != "__class__":
                self.add(_content(cell), f"{name} ({variable})")
        self._add_code(function.__code__, function.__globals__, name)

    def _add_code(self, code: types.CodeType, scope: dict[str, Any], name: str) -> None:
        self._sha.update(code.co_code)
        self._all((code.co_names, code.co_varnames), name)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self._add_code(constant, scope, name)
            else:
                self.add(constant, name)
        read = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        for variable in sorted(read & scope.keys()):
            value = scope[variable]
            if not isinstance(value, types.ModuleType):
                self.add(value, f"{name} ({variable})")
            elif not _known(value.__name__):  # of a module of one's own that which is named
                for attribute in sorted(set(code.co_names) & vars(value).keys()):
                    self.add(vars(value)[attribute], f"{name} ({variable}.{attribute})")


def _content(cell: types.CellType) -> Any:
    """The variable in a closure; None while it has no value."""
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _wrapped(value: Any) -> Any:
    """The Python function inside a compiled or cached one."""
    return getattr(value, "py_func", None) or getattr(value, "__wrapped__", None)


def _label(thing: Any) -> bytes:
    """Module and name of a class or function, with the version of its package where the provenance has none."""
    package = (thing.__module__ or "builtins").partition(".")[0]
    version = "" if package in _LIBRARIES else getattr(sys.modules.get(package), "__version__", "")
    return f"{thing.__module__}.{thing.__qualname__} {version}".encode()


def _known(module: str | None) -> bool:
    """Whether what is in a module is known by its name: what is part of Python, of this package, or installed."""
    package = (module or "builtins").partition(".")[0]
    if package in _LIBRARIES or package == "__main__":
        return package in _LIBRARIES
    place = getattr(sys.modules.get(package), "__file__", None) or ""
    return "site-packages" in place or "dist-packages" in place
