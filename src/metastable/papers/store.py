"""Finished claims on disk: one JSON and one npz per claim, each written whole or not at all."""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path as FilePath
from typing import Any
from zipfile import BadZipFile

import numpy as np

from metastable._version import __version__
from metastable.arguments import told
from metastable.errors import StorageError
from metastable.papers.claim import Claim, Outcome, Setting

BESIDE = ("drawing", "sweep", "encoders", "audit", "monitor", "lab", "cli", "benchmarks")
"""Rooms that no experiment rests on. One that is not named here counts, so that a new one is never overlooked."""

CURVE = "curve "
"""In front of the name of a curve in the npz, whose writer has arguments of its own."""


@cache
def engine(package: FilePath = FilePath(__file__).parents[1]) -> str:
    """Hash of the sources that experiments rest on: a change of the solver is a change of every claim."""
    found = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        name = source.relative_to(package)
        if name.parts[0] not in BESIDE:
            found.update(str(name).encode() + b"\0" + source.read_bytes())
    return found.hexdigest()


def claim_key(claim: Claim, setting: Setting) -> str:
    """What a stored outcome depends on: version, engine, the experiment's module as it is now, name, setting."""
    module = sys.modules.get(getattr(claim.experiment, "__module__", None) or "")
    try:
        code = inspect.getsource(module) if module is not None else ""
    except (OSError, TypeError):
        code = ""
    content = json.dumps(
        {
            "version": __version__,
            "engine": engine(),
            "code": code,
            "claim": claim.name,
            "setting": asdict(setting),
        },
        sort_keys=True,
    )
    return hashlib.sha256(content.encode()).hexdigest()


class ClaimStore:
    """Outcomes under `folder`, by claim name."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = FilePath(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot create the folder {told(self.folder)}: {error.strerror}") from error

    def read(self, claim: Claim, setting: Setting) -> tuple[Outcome, float] | None:
        """The outcome and its seconds when it was stored under the same key; None otherwise."""
        try:
            record = json.loads(self._json(claim).read_text())
            if record["key"] != claim_key(claim, setting):
                return None
            with np.load(self._npz(claim)) as arrays:
                stored = (name for name in arrays.files if name.startswith(CURVE))
                curves = {name.removeprefix(CURVE): arrays[name] for name in stored}
                if str(arrays["__key__"]) != record["key"]:
                    return None
            outcome = Outcome(
                measured=float(record["measured"]),
                uncertainty=float(record["uncertainty"]),
                systematic=float(record["systematic"]),
                curves=curves,
                table=record["table"],
                note=record["note"],
                inconclusive=record["inconclusive"],
                rivals={name: (float(value), float(error)) for name, (value, error) in record["rivals"].items()},
                warnings=tuple(record["warnings"]),
            )
            return outcome, float(record["seconds"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, BadZipFile):
            return None  # nothing there, or a file that another program wrote: the claim is computed again

    def write(self, claim: Claim, setting: Setting, outcome: Outcome, seconds: float, key: str) -> None:
        """Store an outcome under its `claim_key`; the JSON goes last: where it is, both files are whole."""
        record: dict[str, Any] = {
            "key": key,
            "claim": claim.name,
            "version": __version__,
            "setting": asdict(setting),
            "measured": str(float(outcome.measured)),  # words, since JSON has no NaN
            "uncertainty": str(float(outcome.uncertainty)),
            "systematic": float(outcome.systematic),
            "rivals": {name: [str(value) for value in outcome.rival(name)] for name in outcome.rivals},
            "table": [dict(row) for row in outcome.table],
            "note": outcome.note,
            "inconclusive": outcome.inconclusive,
            "warnings": list(outcome.warnings),
            "seconds": seconds,
        }
        curves = {CURVE + name: curve for name, curve in outcome.curves.items()}
        try:
            temporary = self._npz(claim).with_suffix(f".{os.getpid()}.part")
            with open(temporary, "wb") as file:
                np.savez_compressed(file, __key__=np.array(key), **curves)  # type: ignore[arg-type]
            os.replace(temporary, self._npz(claim))
            temporary = self._json(claim).with_suffix(f".{os.getpid()}.part")
            temporary.write_text(json.dumps(record, indent=1, default=np.generic.item))
            os.replace(temporary, self._json(claim))
        except OSError as error:
            raise StorageError(
                f"claim {claim.name!r} cannot be stored in {self.folder}: {error.strerror}"
            ) from error

    def _json(self, claim: Claim) -> FilePath:
        return self.folder / f"{claim.name}.json"

    def _npz(self, claim: Claim) -> FilePath:
        return self.folder / f"{claim.name}.npz"
