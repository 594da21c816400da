"""`Controller`: how long the next step is, from the errors of this one and the one before."""

from __future__ import annotations

import math
from dataclasses import dataclass

SAFETY = 0.9
"""Part of the step that the error estimate would allow which is taken (HNW II.4)."""
SLOWEST, FASTEST = 0.2, 5.0
"""Least and largest factor from one step to the next: that of DOPRI5, and the top of the range of HNW II.4."""
STRETCH = 1.1
"""A step may be so much longer than planned where it then ends at the limit: its error is at most twice the planned
one, which the controller keeps far below what is allowed, and one step less of a run of eight is an eighth. In the
mean of the runs of benchmarks/pairs.py (two seeds) it spares 1% of the evaluations; 1.2 and 1.3 spare no more."""
SHARE = 0.1
"""Part of the tolerance that one step may use, so that the error of a whole run stays near the tolerance: below ten
tolerances for flows that do not themselves multiply errors (benchmarks/pairs.py). With the pair of order 8 it is at
most a tenth of rtol at the end of those runs, down to 1e-10, and on the way 0.003 in the median, 0.03 in nine of
ten and 1.0 in the worst, at beta = 30, where a long step may pass over a merger that its stages hardly see. With
thirty times that share a fifth of the evaluations is spared, and the worst is ten tolerances and more."""
SMALLEST_RATE = 1e-12
"""Speeds and rates below this do not bound the first step."""
LEAST_ERROR = 1e-10
"""An error below this counts as this, so that its power stays finite; the growth is FASTEST long before."""
LEAST_MEMORY = 1e-4
"""The PI controller remembers no error below this, as in Hairer's DOPRI5."""


@dataclass(frozen=True)
class Controller:
    """h <- 0.9 h e^-recent e_before^before, with errors e relative to what is allowed (HNW IV.2)."""

    order: int
    """The error of a step is proportional to h^order: where one is rejected, it is divided by e^(1/order)."""
    recent: float
    """Exponent of the error of this step."""
    before: float
    """Exponent of the error of the step before."""

    def growth(self, error: float, last_error: float, rejected: bool) -> float:
        """The next step as a multiple of this one, which does not grow after a rejection."""
        wanted = SAFETY * max(error, LEAST_ERROR) ** -self.recent * last_error**self.before
        return min(1.0 if rejected else FASTEST, max(SLOWEST, wanted))

    def after_rejection(self, error: float) -> float:
        """The step to try as a multiple of the one that was rejected."""
        return max(SLOWEST, SAFETY * error ** (-1 / self.order)) if math.isfinite(error) else 0.1

    def remembered(self, error: float) -> float:
        """The error as the next step sees it."""
        return max(error, LEAST_MEMORY)
