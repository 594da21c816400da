"""The file of a calibration: arrays in an npz, the rest as JSON inside it, a digest over all; no pickle."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.arguments import told
from metastable.errors import StorageError
from metastable.monitor.calibration import Calibration
from metastable.monitor.channels.apart import Apart
from metastable.monitor.channels.characters import Characters
from metastable.monitor.channels.coherence import Coherence
from metastable.monitor.channels.lexical import Lexical
from metastable.monitor.channels.looked import Looked
from metastable.monitor.channels.pooled import Embedding, Layers
from metastable.monitor.channels.structure import Structure
from metastable.monitor.channels.tokens import Typical, Window
from metastable.monitor.conformal import Conformal
from metastable.monitor.deviation import Deviation
from metastable.monitor.drift import Blocks
from metastable.monitor.gaussian import Gaussian
from metastable.monitor.identity import Identity
from metastable.monitor.lengths import LengthTrend
from metastable.monitor.pairs import Pairs

SCHEMA = "metastable/monitor/3"
CLASSES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Calibration, Apart, Characters, Coherence, Pairs, Lexical, Looked, Embedding, Layers, Structure,
        Typical, Window, Conformal, Deviation, Blocks, Gaussian, Identity, LengthTrend,
    )
}  # fmt: skip
"""What a file may hold."""


def write(path: str, content: dict[str, Any]) -> Path:
    """Write dictionaries, numbers, words and the classes above: whole or not at all."""
    arrays: dict[str, np.ndarray] = {}
    tree = _packed(content, arrays, {})
    header = json.dumps({"schema": SCHEMA, "tree": tree, "digest": _digest(tree, arrays)}).encode()
    target = Path(os.path.realpath(path))
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            np.savez(file, header=np.frombuffer(header, dtype=np.uint8), **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise StorageError(f"the calibration cannot be written to {told(path)}: {error.strerror}") from error
    return target


def read(path: str) -> dict[str, Any]:
    """What `write` wrote; a file that is damaged, or none of ours, is refused."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(bytes(arrays.pop("header")).decode())
        schema, tree, digest = header["schema"], header["tree"], header["digest"]
    except OSError as error:
        reason = error.strerror or "it is damaged"
        raise StorageError(f"the calibration {told(path)} cannot be read: {reason}") from error
    except (
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        AttributeError,
        zipfile.BadZipFile,
        NotImplementedError,
    ) as error:
        raise StorageError(f"{told(path)} is no calibration of a monitor, or it is damaged") from error
    if schema != SCHEMA:
        raise StorageError(f"{told(path)} has schema {str(schema)[:40]!r}, this version reads {SCHEMA!r}")
    if digest != _digest(tree, arrays):
        raise StorageError(f"the calibration {told(path)} is damaged: its content does not fit its digest")
    try:
        return _unpacked(tree, arrays, {})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StorageError(f"the calibration {told(path)} lacks something that this version needs") from error


def _packed(value: Any, arrays: dict[str, np.ndarray], known: dict[int, str]) -> Any:
    if isinstance(value, (Tensor, np.ndarray)):
        if id(value) not in known:  # two channels may share a law
            known[id(value)] = f"a{len(arrays)}"
            arrays[known[id(value)]] = value.cpu().numpy() if isinstance(value, Tensor) else value
        return {"tensor" if isinstance(value, Tensor) else "array": known[id(value)]}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: _packed(getattr(value, f.name), arrays, known) for f in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": fields}
    if isinstance(value, dict):
        return {"dict": {name: _packed(part, arrays, known) for name, part in value.items()}}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_packed(part, arrays, known) for part in value]}
    return value


def _unpacked(tree: Any, arrays: dict[str, np.ndarray], known: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        return tree
    (kind, content), *more = tree.items()
    if kind == "array":
        return arrays[content]
    if kind == "tensor":
        return known.setdefault(content, torch.from_numpy(arrays[content]))
    if kind == "class":
        (_, fields), *_ = more
        return CLASSES[content](**{name: _unpacked(part, arrays, known) for name, part in fields.items()})
    if kind == "dict":
        return {name: _unpacked(part, arrays, known) for name, part in content.items()}
    parts = [_unpacked(part, arrays, known) for part in content]
    return tuple(parts) if kind == "tuple" else parts


def _digest(tree: Any, arrays: dict[str, np.ndarray]) -> str:
    digest = hashlib.sha256(json.dumps(tree, sort_keys=True).encode())
    for name in sorted(arrays):
        digest.update(f"{name}{arrays[name].dtype}{arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).tobytes())
    return digest.hexdigest()
