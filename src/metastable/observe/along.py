"""An observable along a path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.measure import Measure
from metastable.solve.path import Path


def along(path: Path, observable: Callable[[Measure], Any]) -> Float[Tensor, "m"]:
    """observable(rho_t) at every saved time of the path, one frame in memory at a time."""
    return torch.tensor([float(observable(path.measure(i))) for i in range(len(path))], dtype=torch.float64)
