"""`Kernel`: one way to compute attention and what it can do; `select` chooses by these declarations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.operands import Operands
from metastable.errors import InvalidInput

AllDigits = Callable[[Operands], tuple[Tensor, Tensor]]
"""operands -> (mean, log_partition)."""
StatedError = Callable[[Operands, float], tuple[Tensor, Tensor, float]]
"""(operands, rtol) -> (mean, log_partition, error)."""

DEFAULT_RTOL = 1e-10
"""Tolerance of a kernel with a stated error that is asked for by name without one: far below what any integrator
of flows is asked for, and within reach of all of them."""

LEAST_RTOL = 1e-11
"""Below this tolerance only kernels over all pairs are chosen: rounding, which interpolation multiplies by some
hundreds, would take what the others have left."""

HALF = (torch.bfloat16, torch.float16)
CPU = frozenset({"cpu"})
CUDA = frozenset({"cuda"})


@dataclass(frozen=True, eq=False)
class Attended:
    """Result of `attend`: the attended mean (n_q, d_v), log-partition (n_q,), and how it was computed."""

    mean: Float[Tensor, "q v"]
    log_partition: Float[Tensor, "q"]
    kernel: str
    error: float | None = None
    """Estimate of the largest error of a row, relative to the longest value and to Z; None where a kernel keeps all
    digits of float64, or of float32 when no tolerance was asked for."""


def one_per_pair(operands: Operands, _rtol: float) -> float:
    """n_q n_k: the cost of all pairs where it is the unit."""
    return float(operands.pairs)


@dataclass(frozen=True, eq=False)
class Kernel:
    """A function over `Operands` under a name, and what it can do.

    A function that is called with operands which it cannot do refuses them in a sentence of its own; what is
    declared here is what the choice of a kernel reads, so that it never gets that far.
    """

    name: str
    function: AllDigits | StatedError
    least_rtol: float | None = None
    """Least tolerance for which it is chosen; None: it knows no tolerance and keeps all digits of its precision."""
    devices: frozenset[str] | None = None
    """Kinds of device; None: all."""
    dtypes: frozenset[torch.dtype] = frozenset({torch.float32, torch.float64})
    """Precisions of the tensors."""
    precision: torch.dtype | None = None
    """What it computes in, whatever the precision of the tensors; None: in theirs."""
    dimension: int | None = None
    """The only d; None: all."""
    most_columns: int | None = None
    """Largest d and d_v; None: any."""
    most_pairs: int | None = None
    """Pairs n_q n_k above which the next kernel of the table that can do the same is faster; None: never."""
    other_values: bool = True
    """Whether values may be other than the keys."""
    other_lengths: bool = True
    """Whether keys may be off the unit sphere."""
    masks: frozenset[str] = frozenset()
    """Masks that it knows."""
    available: Callable[[], bool] = lambda: True
    """Whether this machine has what it needs."""
    cost: Callable[[Operands, float], float] = one_per_pair
    """(operands, rtol) -> forecast, infinite where it cannot pay. Compared among kernels of one device only:
    nanoseconds of one core on the CPU, pairs in float64 on CUDA."""

    def can(self, operands: Operands, rtol: float | None = None) -> bool:
        """Whether it computes these operands with all the digits of their precision, or to that tolerance."""
        d, d_v, dtype = operands.queries.size(1), operands.values.size(1), operands.queries.dtype
        return (
            (self.devices is None or operands.device in self.devices)
            and dtype in self.dtypes
            and (operands.mask is None or operands.mask in self.masks)
            and (self.dimension is None or d == self.dimension)
            and (self.most_columns is None or max(d, d_v) <= self.most_columns)
            and (self.precision is None or torch.finfo(self.precision).eps <= torch.finfo(dtype).eps)
            and (self.least_rtol is None or (rtol is not None and rtol >= self.least_rtol))
            and self.available()
            and (self.other_values or operands.values_are_keys)
            and (self.other_lengths or operands.keys_on_sphere)
        )

    def __call__(self, operands: Operands, rtol: float | None = None) -> Attended:
        """Attention of the operands; refuses in a sentence what it cannot do."""
        if operands.mask is not None and operands.mask not in self.masks:
            raise InvalidInput(f'kernel="{self.name}" knows no mask {operands.mask!r}')
        if self.least_rtol is not None:
            wanted = DEFAULT_RTOL if rtol is None else rtol
            mean, log_partition, stated = cast(StatedError, self.function)(operands, wanted)
            return Attended(mean, log_partition, kernel=self.name, error=stated)
        mean, log_partition = cast(AllDigits, self.function)(operands)
        return Attended(mean, log_partition, kernel=self.name, error=self._rounding(operands, rtol))

    def _rounding(self, operands: Operands, rtol: float | None) -> float | None:
        """The error that rounding causes, where it is asked for or the kernel rounds more than its input is."""
        if self.precision in HALF:
            return operands.rounding(self.precision)
        dtype = operands.queries.dtype
        return operands.rounding(dtype) if rtol is not None and dtype != torch.float64 else None
