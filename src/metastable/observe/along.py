"""An observable along a path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import function, instance, shown
from metastable.errors import InvalidInput, MetastableError
from metastable.measure import Ensemble, Measure, as_tensor
from metastable.solve.path import Path


def along(path: Path[Any], observable: Callable[[Any], Any]) -> Float[Tensor, "m *b"]:
    """observable(rho_t) at every saved time of the path (m,), one frame in memory at a time.

    Along a path of an `Ensemble`, an observable returns one number per system, and the result is (m, b).
    """
    instance(path, "path", Path, "a Path such as solve returns")
    function(observable, "observable")
    if isinstance(path.end, Ensemble):
        return torch.stack([_values(observable, path.measure(i), i) for i in range(len(path))])
    return torch.tensor([_value(observable, path.measure(i), i) for i in range(len(path))], dtype=torch.float64)


def _values(observable: Callable[[Ensemble], Any], many: Ensemble, index: int) -> Tensor:
    """What an observable returns of many systems, as a row of numbers."""
    try:
        row = as_tensor(observable(many), "observable").cpu()
        if row.shape != (many.b,):
            raise TypeError(f"shape {tuple(row.shape)}")
        return row
    except MetastableError:
        raise
    except Exception as error:
        reason = shown(f"{type(error).__name__}: {error}")[1:-1]
        raise InvalidInput(
            f"observable must return {many.b} numbers, one per system, at saved time {index} got {reason}"
        ) from error


def _value(observable: Callable[[Measure], Any], rho: Measure, index: int) -> float:
    """What an observable returns, as a number; it may be infinite or undefined."""
    try:
        return float(observable(rho))
    except MetastableError:
        raise
    except Exception as error:  # whatever a stranger's function raises
        reason = shown(f"{type(error).__name__}: {error}")[1:-1]
        raise InvalidInput(f"observable must return a number, at saved time {index} got {reason}") from error
