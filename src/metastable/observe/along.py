"""An observable along a path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import function, instance, shown
from metastable.errors import InvalidInput, MetastableError
from metastable.measure import Measure
from metastable.solve.path import Path


def along(path: Path, observable: Callable[[Measure], Any]) -> Float[Tensor, "m"]:
    """observable(rho_t) at every saved time of the path, one frame in memory at a time."""
    instance(path, "path", Path, "a Path such as solve returns")
    function(observable, "observable")
    return torch.tensor([_value(observable, path.measure(i), i) for i in range(len(path))], dtype=torch.float64)


def _value(observable: Callable[[Measure], Any], rho: Measure, index: int) -> float:
    """What an observable returns, as a number; it may be infinite or undefined."""
    try:
        return float(observable(rho))
    except MetastableError:
        raise
    except Exception as error:  # whatever a stranger's function raises
        reason = shown(f"{type(error).__name__}: {error}")[1:-1]
        raise InvalidInput(f"observable must return a number, at saved time {index} got {reason}") from error
