"""What a run will cost, before its first step: the declared cost of its kernel times the steps of a pilot."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from metastable.flows.attending import AttendingFlow
from metastable.flows.flow import Flow
from metastable.flows.plan import Plan
from metastable.measure import Measure
from metastable.solve.solve import solve

PILOT = 256
"""Tokens of the pilot run: enough to meet the slow and the fast ones, few enough to be done in a second."""
SHORTEST = 0.05
"""Seconds of one evaluation below which no pilot is made: a run of hundreds of steps takes seconds then."""
AROUND = 1.4
"""Time of a step over that of its attentions, as `metastable bench solve` measures it (1.3 to 1.6)."""
FAST_DIMENSIONS = (2, 3)
"""Dimensions in which there are kernels with a stated error."""


@dataclass(frozen=True)
class Cost:
    """An estimate: evaluations of the field, the seconds of one, and what would be cheaper, in words."""

    kernel: str
    evaluation: float
    evaluations: int
    cheaper: str | None

    @property
    def seconds(self) -> float:
        """Of the whole run."""
        return self.evaluation * self.evaluations

    def __str__(self) -> str:
        advice = f"; cheaper: {self.cheaper}" if self.cheaper else ""
        return (
            f"about {spoken(self.seconds)}: some {self.evaluations} evaluations of the field, "
            f"{self.evaluation:.2g} s each by the kernel {self.kernel}{advice}"
        )


def estimate(
    flow: Flow, rho: Measure, t: float, rtol: float, atol: float, method: str, step: float | None
) -> Cost | None:
    """The cost of `solve` with these arguments here; None for a run that is short, or of unknown cost."""
    if not isinstance(flow, AttendingFlow) or rho.points.device.type != "cpu" or t <= 0:
        return None
    prepared = flow.for_run(Plan(0.0, t, rtol, atol, step, rho.points.dtype))
    kernel, nanoseconds = prepared.forecast(rho.points, rho.mass)
    evaluation = AROUND * 1e-9 * nanoseconds / torch.get_num_threads()
    if not SHORTEST < evaluation < math.inf:
        return None
    few = rho.points[:: -(-rho.n // PILOT)]
    pilot = solve(flow, Measure(few, sphere=rho.sphere), t, None, method, rtol, atol, step=step)
    evaluations = int(pilot.provenance["statistics"]["evaluations"])
    return Cost(kernel, evaluation, evaluations, _cheaper(prepared, kernel, rho, rtol, step))


def _cheaper(flow: AttendingFlow, kernel: str, rho: Measure, rtol: float, step: float | None) -> str | None:
    """What would cost less: a kernel with a stated error where none is used, else a larger tolerance."""
    approximate = kernel in ("nearby", "circle", "sphere", "sphere_grid")
    if not approximate and rho.d in FAST_DIMENSIONS:
        if rho.points.dtype != torch.float64:
            return "dtype float64, which has kernels whose work grows like n"
        if flow.rtol is None:
            return "a tolerance for the attention instead of all digits"
        if flow.kernel != "auto":
            return "the kernel auto"
    if not approximate:
        return f"fewer tokens, a tenth of the {rho.n} for a hundredth of the time"
    return f"a larger tolerance, rtol = 1e-5 instead of {rtol:g}" if step is None and rtol < 1e-5 else None


def spoken(seconds: float) -> str:
    """A duration as one says it.

    >>> spoken(42.0), spoken(600.0), spoken(86400.0)
    ('42 s', '10 min', '24 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
