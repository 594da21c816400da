"""The cluster closure: mean offset and width of a cluster at e_1, from wide (ruled by M) to narrow (ruled by V).

V and B diagonal in one orthonormal basis, cluster at e_1, B_1 > 0, direction k; s = beta B_1 Sigma, r = s/(1+s):
    d ln(xi)/dt = V_k[(1-r) + (B_k/B_1) r] - V_1,        d ln(s)/dt = 2[(V_k B_k/B_1) r - V_1]            (C1)

B_1 < 0 (clusters at e_1 and -e_1 that attend each other): the same with -V and -B for the offset the pair has in
common when seen through x -> -x; for the offset in which it differs, parity = -1, the term (1-r) changes sign.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import integer, number, shown
from metastable.errors import InvalidInput
from metastable.theory.tokens import read_times

LONGEST = 1e12
"""Longest integration in units of the fastest time, which the ten digits asked for still tell apart from it."""
LARGEST = 1e100
"""Largest entry of V and B, beta and variance of a cluster: products of three of them are still numbers."""


@dataclass(frozen=True)
class Cluster:
    """A cluster at e_1 seen in direction k: V_1, V_k, B_1 > 0, B_k, inverse temperature and initial variance.

    parity = -1: the offset is that of one of two clusters that attend each other, the other's being its opposite.
    """

    V_1: float
    V_k: float
    B_1: float
    B_k: float
    beta: float
    variance: float = 1.0
    parity: int = 1

    def __post_init__(self) -> None:
        for name in ("V_1", "V_k", "B_1", "B_k"):
            number(getattr(self, name), name, least=-LARGEST, most=LARGEST)
        for name in ("beta", "variance"):
            number(getattr(self, name), name, least=1 / LARGEST, most=LARGEST)
        if self.B_1 <= 0:
            raise InvalidInput(f"the cluster closure needs B_1 > 0 (a cluster that attends itself), got {self.B_1}")
        if integer(self.parity, "parity") not in (1, -1):
            raise InvalidInput(f"parity must be 1 or -1, got {shown(self.parity)}")

    @property
    def escape_rate(self) -> float:
        """parity V_k - V_1: exponent of the offset once the cluster is narrow; it leaves where this is positive."""
        return self.parity * self.V_k - self.V_1

    @property
    def local_rate(self) -> float:
        """c_loc = (M_1 - M_k)/B_1, M = V B."""
        return (self.V_1 * self.B_1 - self.V_k * self.B_k) / self.B_1

    @property
    def _fastest(self) -> float:
        """A bound of the slopes of C1, positive."""
        return abs(self.V_1) + abs(self.V_k) * (1 + abs(self.B_k / self.B_1)) or 1.0

    @property
    def _log_width(self) -> float:
        """ln(beta B_1 Sigma_0), a sum of logarithms: the product may leave the range of numbers."""
        return math.log(self.beta) + math.log(self.B_1) + math.log(self.variance)

    @property
    def crossing_time(self) -> float:
        """t_x = log(beta B_1 Sigma_0)/(2 c_loc): width = (beta B_1)^{-1/2}, the O(log beta) time (C2)."""
        if self.local_rate <= 0:
            return math.inf
        return max(0.0, self._log_width / (2 * self.local_rate))

    def crude_exit_time(self, offset: float, level: float = 0.5) -> float:
        """t_x + [ln(1/xi_0) + ln(beta B_1 Sigma_0)/2 + ln(level)]/(V_k - V_1): exit by straight lines (C3)."""
        offset, level = number(offset, "offset", above=0.0), number(level, "level", above=0.0)
        escape = self.escape_rate
        if escape <= 0:
            return math.inf
        start = math.log(level / offset) + 0.5 * self._log_width
        return self.crossing_time + start / escape

    def solve(self, t: Any, offset: float) -> tuple[Float[Tensor, "m"], Float[Tensor, "m"]]:
        """(xi, Sigma) at the times t, by integrating the closure from xi_0 = offset."""
        times = np.atleast_1d(read_times(t))
        offset = number(offset, "offset")
        if offset == 0 or not len(times):
            raise InvalidInput("the closure needs an offset other than 0 and at least one time")
        # A horizon far below the fastest rate leaves the integrator without a first step.
        horizon = max(float(times.max()), 1e-6 / self._fastest)
        solution = self._integrated(offset, horizon, dense_output=True).sol(times)
        xi = math.copysign(1.0, offset) * np.exp(solution[0])
        return torch.from_numpy(xi), torch.from_numpy(np.exp(solution[1]) / (self.beta * self.B_1))

    def exit_time(self, offset: float, level: float = 0.5) -> float:
        """Time at which |xi| grows through `level`, from the integrated closure; infinite when V_k <= V_1 (C3)."""
        offset, level = number(offset, "offset"), number(level, "level", above=0.0)
        if self.escape_rate <= 0:
            return math.inf
        if not 0 < abs(offset) < level:
            raise InvalidInput(f"the offset must lie between 0 and {level}, got {offset}")

        def reached(_: float, y: Sequence[float] | np.ndarray) -> float:
            return float(y[0] - math.log(level))

        reached.terminal, reached.direction = True, 1.0  # type: ignore[attr-defined]
        crude = self.crude_exit_time(abs(offset), level)
        horizon = 4 * crude + 100 / self.escape_rate
        if horizon * self._fastest > LONGEST:
            return crude  # good to a few per cent
        found = self._integrated(offset, horizon, events=reached).t_events[0]
        return float(found[0]) if len(found) else math.inf

    def _integrated(self, offset: float, horizon: float, **options: Any) -> Any:
        """(ln |xi|, ln(beta B_1 Sigma)) up to the horizon, to ten digits.

        Two numbers that stand for a cluster, not tokens: an equation for SciPy, not for `solve`. A width that has
        found its balance makes it stiff.
        """
        if horizon * self._fastest > LONGEST:
            raise InvalidInput(
                f"the closure is integrated over {LONGEST:g} of its fastest times, 1/{self._fastest:.3g}, at most; "
                f"{horizon:.3g} is longer"
            )
        from scipy.integrate import solve_ivp

        start = [math.log(abs(offset)), self._log_width]
        return solve_ivp(
            lambda _, y: self._slope(y), (0.0, horizon), start, method="LSODA", rtol=1e-10, atol=1e-12, **options
        )

    def sampled_offset(self, n: int) -> float:
        """sqrt(Sigma_0/(n/2)): the offset that n iid tokens of a symmetric law give each of two clusters (C3)."""
        return math.sqrt(self.variance / (integer(n, "n", least=1, most=2**53) / 2))

    def _slope(self, y: Sequence[float] | np.ndarray) -> list[float]:
        s = math.exp(min(y[1], 700.0))
        r = s / (1 + s)
        mean = self.V_k * (self.parity * (1 - r) + self.B_k / self.B_1 * r) - self.V_1
        return [mean, 2 * (self.V_k * self.B_k / self.B_1 * r - self.V_1)]
