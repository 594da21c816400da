"""`AttendingFlow`: a flow whose work is one attention, by a kernel with a tolerance of its own or of its run."""

from __future__ import annotations

import copy
from typing import Any, ClassVar, Literal, Self

import torch
from jaxtyping import Float, Int
from torch import Tensor

from metastable.arguments import choice, number, numbers, shape, shown
from metastable.attention.attend import attend_unchecked
from metastable.attention.batch import attend_many_unchecked
from metastable.attention.kernel import DEFAULT_RTOL, LEAST_RTOL, Attended, Kernel
from metastable.attention.operands import Operands
from metastable.attention.select import KERNELS, select
from metastable.errors import InvalidInput
from metastable.flows.flow import WeightedFlow, one_system
from metastable.flows.plan import Plan
from metastable.flows.pullback import Order, OverPairs
from metastable.weights import AttentionWeights, Schedule

Tolerance = float | Literal["auto"] | None
"""Relative error of a kernel: a number, None for all digits, "auto" for a share of the tolerance of the run."""

SHARE = 0.01
"""Part of a run's tolerance rtol + atol that the attention of its field may use. The integrator spends a tenth of
the tolerance in every step; an error of this size in the field adds a tenth of that per unit of time in which a
token moves by its own length. Runs with it and runs with all digits have the same error to 1%, which
tests/flows/test_attending.py measures."""
LARGEST = 0.01
"""Largest tolerance that a run hands on, however coarse it is: beyond, kernels gain nothing."""


BY_SERIES = ("auto", "circle", "sphere", "sphere_grid")
"""Kernels whose attention may be differentiated by series; those over all pairs keep all digits."""

ROUNDING = 1.0
"""Part of a run's tolerance that the bound of float32 arithmetic may reach on a GPU. The bound is the worst case,
in which all roundings of a sum go one way; tests/flows/test_attending.py measures what is left of it in a run."""


class AttendingFlow(WeightedFlow):
    """A flow with weights, an inverse temperature beta >= 0, and a kernel of attention.

    kernel: "auto" or the name of one. rtol: the relative error allowed to it; None for all digits; "auto" for
    `SHARE` of the tolerance of a run, and for all digits outside of a run. In single precision "auto" stands for
    all digits of that precision.
    """

    caches: ClassVar[tuple[str, ...]] = (*WeightedFlow.caches, "_used")

    beta: Any
    """A number, or a tensor (b,): one for each of b systems."""

    def __init__(
        self, weights: AttentionWeights | Schedule, beta: float | Any, kernel: str, rtol: Tolerance
    ) -> None:
        super().__init__(weights)
        self.beta = read_betas(beta)
        self.kernel = choice(kernel, "kernel", ("auto", *sorted(KERNELS)))
        self.follows_run = isinstance(rtol, str) and rtol == "auto"
        given = None if rtol is None or self.follows_run else rtol
        self.rtol = None if given is None else number(given, "rtol", above=0, below=1)
        self.rounding: float | None = None
        """What float32 arithmetic on a GPU may round away, where that is more than `rtol`."""
        self._used: dict[str, float] = {}

    @property
    def systems(self) -> int | None:
        """How many systems have a beta of their own; None for one beta of all."""
        return len(self.beta) if isinstance(self.beta, Tensor) else None

    def of_system(self, index: int) -> Self:
        """The flow of one of many systems, with its own beta."""
        super().of_system(index)
        if not isinstance(self.beta, Tensor):
            return self
        one = copy.copy(self)
        one.beta = float(self.beta[index])
        return one

    def for_run(self, plan: Plan) -> Self:
        """The flow with its share of the run's tolerance and an empty record of kernels."""
        prepared = super().for_run(plan)
        if prepared is self and not self._foreign:
            prepared = copy.copy(self)
        prepared._used = {}
        if self.follows_run and not self._foreign:
            prepared.rtol = share(plan, self.kernel)
            prepared.rounding = min(ROUNDING * (plan.rtol + plan.atol), LARGEST)
        return prepared

    def record(self) -> dict[str, Any]:
        """The tolerance of attention, the kernels that were used, and the largest error that one of them stated."""
        return attention_record(self.rtol, self._used)

    def recall(self, record: dict[str, Any]) -> None:
        """Take over the kernels of the run so far."""
        super().recall(record)
        for kernel in record.get("attention", {}).get("kernels", ()):
            self._note(kernel, record["attention"]["largest_error"])

    def _attend(
        self,
        queries: Float[Tensor, "q c"],
        keys: Float[Tensor, "k c"],
        values: Float[Tensor, "k v"],
        mass: Float[Tensor, "k"],
        beta: float,
    ) -> Attended:
        """Attention by the flow's kernel, which is written down."""
        if isinstance(beta, Tensor):
            raise InvalidInput(one_system(self))
        found = attend_unchecked(
            queries, keys, values, mass, beta, kernel=self.kernel, rtol=self.rtol, rounding=self.rounding
        )
        self._note(found.kernel, found.error)
        return found

    def _order(self, mass: Float[Tensor, "n"]) -> Order:
        """How much each key counts, and which of them a token sees: all."""
        return Order(torch.log(mass))

    def _over_pairs(
        self,
        points: Float[Tensor, "n d"],
        mass: Float[Tensor, "n"],
        weights: AttentionWeights,
        attended: Attended,
        *,
        field: Float[Tensor, "d"] | None = None,
        log_scale: float | None = None,
    ) -> OverPairs:
        """The attention of the tokens as its transpose needs it: the mean of the points, in all coordinates."""
        if weights.key is not None or weights.output is not None:
            queries = self.beta * weights.B_transpose(points)
            queries = queries if field is None else queries + field
            attended = self._attend(queries, points, points, mass, 1.0)
        order = self._order(mass)
        rtol = self.rtol if self.spherical and self.kernel in BY_SERIES else None
        return OverPairs(points, weights, self.beta, field, attended, order, log_scale, rtol)

    def _attend_many(
        self,
        queries: Float[Tensor, "b q c"],
        keys: Float[Tensor, "b k c"],
        values: Float[Tensor, "b k v"],
        mass: Float[Tensor, "b k"],
        beta: Float[Tensor, "b"],
    ) -> tuple[Float[Tensor, "b q v"], Float[Tensor, "b q"]]:
        """(mean, log Z) of many systems at once, each with its own beta."""
        self._note("batch", None)
        return attend_many_unchecked(queries, keys, values, mass, beta)

    def _betas(self, which: Int[Tensor, "b"], like: Tensor) -> Float[Tensor, "b"]:
        """beta of the systems number `which`, in the precision of their tokens."""
        if isinstance(self.beta, Tensor):
            return self.beta[which.cpu()].to(like)
        return torch.full(which.shape, self.beta, dtype=like.dtype, device=like.device)

    def _note(self, kernel: str, error: float | None) -> None:
        self._used[kernel] = max(self._used.get(kernel, 0.0), error or 0.0)

    def forecast(self, points: Float[Tensor, "n d"], mass: Float[Tensor, "n"]) -> tuple[str, float]:
        """The kernel that these tokens get, and the nanoseconds that it says to take on one core."""
        points, mass = self.tokens(points, mass)
        w = self.weights_at(0.0, points)
        operands = Operands(w.queries(points), w.keys(points), w.values(points), mass, self.beta)
        kernel = self._chosen(operands)
        return kernel.name, kernel.cost(operands, self.rtol or DEFAULT_RTOL)

    def _chosen(self, operands: Operands) -> Kernel:
        """The kernel that these operands get."""
        if self.kernel != "auto":
            return KERNELS[self.kernel]
        return select(operands, self.rtol, self.rounding)

    def describe(self) -> dict[str, Any]:
        """Name, weights, beta and kernel."""
        beta = self.beta.tolist() if isinstance(self.beta, Tensor) else self.beta
        return super().describe() | {"beta": beta, "kernel": self.kernel, "rtol": self.rtol}

    def __repr__(self) -> str:
        beta = f"{shown(self.beta)[3:]}" if isinstance(self.beta, Tensor) else f"{self.beta:g}"
        return f"{type(self).__name__}({self.weights!r}, beta={beta})"


def read_betas(beta: Any) -> float | Float[Tensor, "b"]:
    """An inverse temperature, finite and >= 0, or a row of them, one for each system."""
    sizes = shape(beta)
    if not isinstance(beta, list | tuple) and not (isinstance(sizes, tuple) and len(sizes) == 1):
        return number(beta, "beta", least=0)
    row = numbers(beta, "beta", least=0)
    if not row:
        raise InvalidInput("beta must be a number, or one for each system, got none")
    return torch.tensor(row, dtype=torch.float64)


def scheduled(flow: AttendingFlow) -> bool:
    """Whether the weights depend on time, so that systems at different times have different ones."""
    return isinstance(flow.weights, Schedule)


def attention_record(rtol: float | None, used: dict[str, float]) -> dict[str, Any]:
    """{"attention": ...} of kernels by name with the largest error that each stated (0: all digits)."""
    largest = max(used.values(), default=0.0) or None
    return {"attention": {"rtol": rtol, "kernels": sorted(used), "largest_error": largest}}


def share(plan: Plan, kernel: str) -> float | None:
    """What the tolerance of a run leaves to a kernel; None, all digits, for tokens in single precision.

    >>> share(Plan(0.0, 1.0, rtol=1e-6, atol=0.0), "auto")
    1e-08
    """
    if plan.dtype != torch.float64:
        return None
    least = 0.0 if kernel == "auto" else LEAST_RTOL
    return min(max(SHARE * (plan.rtol + plan.atol), least), LARGEST)
