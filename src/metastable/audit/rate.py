"""`Rate`: k of n with its 95% interval, and what may be said of it."""

from __future__ import annotations

import math
from dataclasses import dataclass

NORMAL_QUANTILE = 1.959963984540054
"""Two-sided 95% quantile of the normal distribution."""


@dataclass(frozen=True)
class Rate:
    """k of n and Wilson's interval (p + z^2/2n -+ z sqrt(p (1-p)/n + z^2/4n^2))/(1 + z^2/n), p = k/n, z = 1.96."""

    k: int
    n: int
    low: float
    high: float

    @classmethod
    def of(cls, k: int, n: int) -> Rate:
        """The rate with its interval; of n = 0 nothing is known: [0, 1].

        >>> Rate.of(10, 10)
        Rate(k=10, n=10, low=0.722..., high=1.0)
        """
        if n == 0:
            return cls(0, 0, 0.0, 1.0)
        p, z = k / n, NORMAL_QUANTILE
        centre, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
        low, high = (centre - half) / (1 + z * z / n), (centre + half) / (1 + z * z / n)
        return cls(k, n, 0.0 if k == 0 else low, 1.0 if k == n else high)

    @property
    def verdict(self) -> bool | None:
        """True: more than half, by the whole interval; False: less than half; None: cannot be told."""
        return True if self.low > 0.5 else False if self.high < 0.5 else None

    def beats(self, control: Rate) -> bool:
        """Whether the whole interval lies above the whole interval of the control."""
        return self.low > control.high

    def __str__(self) -> str:
        return f"{self.k} of {self.n} ({self.low:.0%} to {self.high:.0%})"
