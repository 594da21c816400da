"""Where the numbers of an audit come from: the weights by their hash, the texts, the versions, the day."""

from __future__ import annotations

import hashlib
import platform
from datetime import UTC, datetime
from typing import Any

import torch

from metastable._version import __version__
from metastable.audit.corpus import Corpus, described
from metastable.encoders import Encoder
from metastable.errors import StorageError


def provenance(encoder: Encoder, corpus: Corpus | None, given: str | None) -> dict[str, Any]:
    """Software, model and texts; `given` is the path or id as the user wrote it."""
    return {
        "software": software(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": {"given": given, "weights": weight_hashes(encoder), "pooling": encoder.pooling},
        "input": described(corpus),
    }


def software() -> dict[str, str]:
    """The versions of what computed."""
    found = {"metastable": __version__, "torch": torch.__version__, "python": platform.python_version()}
    try:
        import transformers
    except ImportError:
        return found
    return found | {"transformers": transformers.__version__}


def weight_hashes(encoder: Encoder) -> dict[str, str]:
    """SHA-256 of every weight file by its name, as sha256sum prints it; of a model in memory, of its parameters."""
    if encoder.files:
        return {file.name: _of_file(file) for file in encoder.files}
    total = hashlib.sha256()
    for name, tensor in encoder.model.state_dict().items():
        total.update(name.encode())
        total.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return {"in memory": total.hexdigest()}


def _of_file(file: Any) -> str:
    try:
        with file.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise StorageError(f"the weight file {file.name} cannot be read any more: {error.strerror}") from error
