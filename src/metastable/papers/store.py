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

import numpy as np

from metastable._version import __version__
from metastable.errors import StorageError
from metastable.papers.claim import Claim, Outcome, Setting

BESIDE = ("drawing", "sweep", "encoders", "audit", "monitor", "lab", "cli", "benchmarks")
"""Rooms that no experiment rests on. One that is not named here counts, so that a new one is never overlooked."""


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
    module = sys.modules.get(claim.experiment.__module__)
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
            raise StorageError(f"cannot create the folder {self.folder}: {error.strerror}") from error

    def read(self, claim: Claim, setting: Setting) -> tuple[Outcome, float] | None:
        """The outcome and its seconds when it was stored under the same key; None otherwise."""
        try:
            record = json.loads(self._json(claim).read_text())
            if record["key"] != claim_key(claim, setting):
                return None
            with np.load(self._npz(claim)) as arrays:
                curves = {name: arrays[name] for name in arrays.files if name != "__key__"}
                if str(arrays["__key__"]) != record["key"]:
                    return None
            outcome = Outcome(
                measured=float("nan") if record["measured"] is None else float(record["measured"]),
                uncertainty=record["uncertainty"],
                curves=curves,
                table=record["table"],
                note=record["note"],
                inconclusive=record["inconclusive"],
            )
            return outcome, float(record["seconds"])
        except (OSError, ValueError, KeyError, TypeError):
            return None  # nothing there, or a file that another program wrote: the claim is computed again

    def write(self, claim: Claim, setting: Setting, outcome: Outcome, seconds: float, key: str) -> None:
        """Store an outcome under its `claim_key`; the JSON goes last: where it is, both files are whole."""
        temporary = self._npz(claim).with_suffix(f".{os.getpid()}.part")
        with open(temporary, "wb") as file:
            np.savez_compressed(file, __key__=np.array(key), **dict(outcome.curves))  # type: ignore[arg-type]
        os.replace(temporary, self._npz(claim))
        record: dict[str, Any] = {
            "key": key,
            "claim": claim.name,
            "version": __version__,
            "setting": asdict(setting),
            "measured": outcome.measured if np.isfinite(outcome.measured) else None,
            "uncertainty": outcome.uncertainty,
            "table": [dict(row) for row in outcome.table],
            "note": outcome.note,
            "inconclusive": outcome.inconclusive,
            "seconds": seconds,
        }
        temporary = self._json(claim).with_suffix(f".{os.getpid()}.part")
        temporary.write_text(json.dumps(record, indent=1, default=_number))
        os.replace(temporary, self._json(claim))

    def _json(self, claim: Claim) -> FilePath:
        return self.folder / f"{claim.name}.json"

    def _npz(self, claim: Claim) -> FilePath:
        return self.folder / f"{claim.name}.npz"


def _number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"cannot store a {type(value).__name__} in a claim's table")
