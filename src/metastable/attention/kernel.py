"""`Kernel`: one way to compute attention and what it can do; `select` chooses by these declarations."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import OneLine, flag, function, instance, integer, number, sequence, shown
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

MOST_MASS_RATIO = 1e150
"""Largest ratio of masses for cells and grids, whose proxies multiply weights by masses: weights down to 2^-1000
are kept, and beside the square root of that nothing below it shows."""

HALF = (torch.bfloat16, torch.float16)
CPU = frozenset({"cpu"})
CUDA = frozenset({"cuda"})


def check_rtol(rtol: Any, name: str = "rtol") -> None:
    """Refuse a relative tolerance that is not None or in (0, 1)."""
    try:
        if rtol is not None:
            number(rtol, name, above=0, below=1)
    except InvalidInput:
        raise InvalidInput(f"{name} must be None or lie between 0 and 1, got {shown(rtol)}") from None


def check_operands(operands: Any) -> None:
    """Refuse what are no operands of attention."""
    instance(operands, "operands", Operands, "Operands (queries, keys, values, mass, beta)")


@dataclass(frozen=True, eq=False)
class Attended:
    """Result of `attend`: the attended mean (n_q, d_v), log-partition (n_q,), and how it was computed.

    Of many systems they are (b, n_q, d_v) and (b, n_q).
    """

    mean: Float[Tensor, "*b q v"]
    log_partition: Float[Tensor, "*b q"]
    kernel: str
    error: float | None = None
    """Bound of the largest error of a row, relative to the longest value and to Z; None where a kernel keeps all
    digits of float64, or of float32 when no tolerance was asked for: `Kernel.rounding` bounds what is left."""

    def __post_init__(self) -> None:
        if not (isinstance(self.mean, Tensor) and isinstance(self.log_partition, Tensor)):
            raise InvalidInput("mean and log_partition must be tensors")
        if not (isinstance(self.kernel, str) and (self.error is None or isinstance(self.error, float))):
            raise InvalidInput(
                f"kernel must be a name and error None or a number, got {shown(self.kernel)}, {shown(self.error)}"
            )

    def __repr__(self) -> str:
        many = f"{len(self.mean)} systems of " if self.mean.ndim == 3 else ""
        return f"Attended({many}{self.mean.shape[-2]} queries by {self.kernel}, error {self.error})"


def in_any_order(operands: Operands) -> float:
    """n_k: whatever the order of a sum, no term takes part in more additions."""
    return float(operands.keys.size(0))


def in_float64(_operands: Operands) -> float:
    """None, where sums are in float64."""
    return 0.0


def one_per_pair(operands: Operands, _rtol: float) -> float:
    """n_q n_k: the cost of all pairs where it is the unit."""
    return float(operands.pairs)


@dataclass(frozen=True, eq=False, repr=False)
class Kernel(OneLine):
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
    least_columns: int = 1
    """Least d."""
    most_columns: int | None = None
    """Largest d and d_v; None: any."""
    most_pairs: int | None = None
    """Pairs n_q n_k above which the next kernel of the table that can do the same is faster; None: never."""
    most_keys: int | None = None
    """Keys above which its sums lose digits that the next kernel of the table keeps; None: never."""
    additions: Callable[[Operands], float] = in_any_order
    """operands -> additions in float32 that one term of a sum takes part in, where it does not compute in float64:
    each of them rounds."""
    most_sharp: float | None = None
    """Largest beta max|q| that it resolves; None: any."""
    most_mass_ratio: float | None = None
    """Largest max m / min m that it can tell apart; None: any."""
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
    search: float = 0.0
    """What the forecast itself takes, in the same units: no kernel that costs less is given up for it."""

    def __post_init__(self) -> None:
        instance(self.name, "name", str, "a text")
        for name in ("function", "additions", "available", "cost"):
            function(getattr(self, name), name)
        for name in ("dimension", "least_columns", "most_columns", "most_pairs", "most_keys"):
            if getattr(self, name) is not None:
                integer(getattr(self, name), name, least=1)
        number(self.search, "search", least=0)
        for name in ("most_sharp", "most_mass_ratio"):
            if getattr(self, name) is not None:
                number(getattr(self, name), name, above=0)
        check_rtol(self.least_rtol, "least_rtol")
        if self.precision is not None:
            instance(self.precision, "precision", torch.dtype, "a torch.dtype")
        for name in ("other_values", "other_lengths"):
            flag(getattr(self, name), name)
        for name, kind in (("devices", str), ("masks", str), ("dtypes", torch.dtype)):
            held = getattr(self, name)
            if held is not None or name != "devices":
                instance(held, name, frozenset, "a frozenset")
                sequence(held, name, kind, kind.__name__)

    def can(self, operands: Operands, rtol: float | None = None) -> bool:
        """Whether it computes these operands with all the digits of their precision, or to that tolerance."""
        check_operands(operands)
        check_rtol(rtol)
        return self.fits(operands, rtol)

    def fits(self, operands: Operands, rtol: float | None) -> bool:
        """`can` without a look at its arguments."""
        if self.devices is not None and operands.device not in self.devices:
            return False
        d, d_v, dtype = operands.queries.size(1), operands.values.size(1), operands.queries.dtype
        return (
            dtype in self.dtypes
            and (operands.mask is None or operands.mask in self.masks)
            and (self.dimension is None or d == self.dimension)
            and d >= self.least_columns
            and (self.most_columns is None or max(d, d_v) <= self.most_columns)
            and (self.precision is None or torch.finfo(self.precision).eps <= torch.finfo(dtype).eps)
            and (self.least_rtol is None or (rtol is not None and rtol >= self.least_rtol))
            and self.available()
            and (self.other_values or operands.values_are_keys)
            and (self.other_lengths or operands.keys_on_sphere)
            and (self.most_sharp is None or operands.sharpness <= self.most_sharp)
            and (self.most_mass_ratio is None or operands.log_mass_ratio <= math.log(self.most_mass_ratio))
        )

    def __call__(self, operands: Operands, rtol: float | None = None) -> Attended:
        """Attention of the operands; refuses in a sentence what it cannot do."""
        check_operands(operands)
        check_rtol(rtol)
        return self.compute(operands, rtol)

    def compute(self, operands: Operands, rtol: float | None) -> Attended:
        """`__call__` without a look at its arguments."""
        if operands.mask is not None and operands.mask not in self.masks:
            raise InvalidInput(f'kernel="{self.name}" knows no mask {operands.mask!r}')
        if self.most_sharp is not None or self.most_mass_ratio is not None:
            self._require_range(operands)
        if self.least_rtol is not None:
            operands = operands.seen
            wanted = DEFAULT_RTOL if rtol is None else rtol
            mean, log_partition, stated = cast(StatedError, self.function)(operands, wanted)
            return Attended(mean, log_partition, kernel=self.name, error=stated)
        mean, log_partition = cast(AllDigits, self.function)(operands)
        dtype = operands.queries.dtype
        coarser = self.precision is not None and self._computed_in(dtype) != dtype
        stated = coarser or (rtol is not None and dtype != torch.float64)
        return Attended(mean, log_partition, kernel=self.name, error=self.rounding(operands) if stated else None)

    def rounding(self, operands: Operands) -> float:
        """What rounding in the precision of the kernel does at most, relative to the longest value and to Z."""
        check_operands(operands)
        return operands.once(self._rounding)

    def _rounding(self, operands: Operands) -> float:
        dtype = self._computed_in(operands.queries.dtype)
        sums = torch.finfo(torch.float64).eps * in_any_order(operands)
        if dtype != torch.float64:
            sums += torch.finfo(torch.float32).eps * self.additions(operands)
        return operands.rounding(dtype) + sums

    def _computed_in(self, dtype: torch.dtype) -> torch.dtype:
        """The coarser one of the precisions of the kernel and of the tensors."""
        return max(self.precision or dtype, dtype, key=lambda precision: torch.finfo(precision).eps)

    def _require_range(self, operands: Operands) -> None:
        """Refuse what it does not resolve, where the choice of a kernel would not have taken it."""
        if self.devices == CPU:
            operands.require_cpu(self.name)
        if self.most_sharp is not None and operands.sharpness > self.most_sharp:
            raise InvalidInput(
                f'kernel="{self.name}" resolves beta max|q| up to {self.most_sharp:g}, got '
                f"{operands.sharpness:.3g}; use kernel='auto'"
            )
        if self.most_mass_ratio is not None and operands.log_mass_ratio > math.log(self.most_mass_ratio):
            raise InvalidInput(
                f'kernel="{self.name}" takes masses whose ratios are up to {self.most_mass_ratio:g}, got '
                f"10^{operands.log_mass_ratio / math.log(10):.0f}; use kernel='auto'"
            )
