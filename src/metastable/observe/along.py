"""An observable along a path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import function, instance, shown
from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.solve.path import Path


def along(path: Path, observable: Callable[[Measure], Any]) -> Float[Tensor, "m"]:
    """observable(rho_t) at every saved time of the path, one frame in memory at a time."""
    instance(path, "path", Path, "a Path such as solve returns")
    function(observable, "observable")
    return torch.tensor([_value(observable(path.measure(i)), i) for i in range(len(path))], dtype=torch.float64)


def _value(measured: Any, index: int) -> float:
    """What an observable returned, as a number; it may be infinite or undefined."""
    try:
        return float(measured)
    except Exception:  # whatever a stranger's object raises on its way into a number
        given = shown(measured)
    raise InvalidInput(f"observable must return a number, got {given} at saved time {index}")
