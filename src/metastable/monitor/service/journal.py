"""`Journal`: scores as lines of JSON in a file, which is turned over before it grows too large."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from metastable.arguments import integer, place, told
from metastable.errors import StorageError

LARGEST = 64 * 2**20
"""Bytes after which the file is put aside as `<name>.1`, which it replaces: the log never takes twice as much."""


class Journal:
    """One line per entry: time, then what was given. Texts are not written."""

    def __init__(self, path: str | os.PathLike[str], largest: int = LARGEST) -> None:
        self.path = Path(place(path, "path"))
        self.largest = integer(largest, "largest", least=1024)
        self._lock = threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"the log cannot be written to {told(path)}: {error.strerror}") from error

    def write(self, entry: dict[str, Any]) -> None:
        """Add one line; a disk that is full is no reason to stop."""
        line = json.dumps({"time": round(time.time(), 3), **entry}, allow_nan=False)
        with self._lock:
            try:
                if self._file.tell() + len(line) > self.largest:
                    self._file.close()
                    os.replace(self.path, f"{self.path}.1")
                    self._file = self.path.open("a", encoding="utf-8")
                self._file.write(line + "\n")
                self._file.flush()
            except OSError:
                return

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()
