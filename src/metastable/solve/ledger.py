"""`Ledger`: derivatives with respect to the weights, added up over all stages of a run."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.flows.pullback import HeadCotangent, Pullback
from metastable.weights import Schedule


class Ledger:
    """The sums of dL/dV, dL/dB and dL/dbeta of every head, V and B one for each stretch of a schedule."""

    def __init__(self, pullback: Pullback, points: Float[Tensor, "n d"]) -> None:
        if not pullback.sure:  # a transpose of nothing: flows without one are refused before the run
            pullback.back(torch.zeros_like(points))
        d = points.shape[1]
        self.jumps = [
            head.weights.breakpoints if isinstance(head.weights, Schedule) else None for head in pullback.heads
        ]
        sizes = [() if jumps is None else (len(jumps) + 1,) for jumps in self.jumps]
        self.V, self.B = ([points.new_zeros((*size, d, d)) for size in sizes] for _ in range(2))
        self.beta = points.new_zeros(len(sizes))

    def add(self, t: float, of_weights: Sequence[Sequence[HeadCotangent]]) -> None:
        """Add what the stages of a step around time t found."""
        for heads in of_weights:
            for index, head in enumerate(heads):
                jumps = self.jumps[index]
                here = () if jumps is None else bisect.bisect_right(jumps, t)
                self.V[index][here] += head.V
                self.B[index][here] += head.B
                self.beta[index] += head.beta

    def totals(self) -> tuple[Any, Any, Any]:
        """(V, B, beta) as `Gradient` has them."""
        if not self.jumps:
            return None, None, None
        if len(self.jumps) == 1:
            return self.V[0], self.B[0], float(self.beta[0])
        return _stacked(self.V), _stacked(self.B), self.beta


def _stacked(matrices: list[Tensor]) -> Tensor | tuple[Tensor, ...]:
    return torch.stack(matrices) if len({m.shape for m in matrices}) == 1 else tuple(matrices)
