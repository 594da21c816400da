"""`Plan`: what a flow may know of a run before it begins."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Plan:
    """A run over [start, stop] with these tolerances, with tokens of this precision.

    step: the step that was asked for, None where the method chooses.
    """

    start: float
    stop: float
    rtol: float
    atol: float
    step: float | None = None
    dtype: torch.dtype = torch.float64
