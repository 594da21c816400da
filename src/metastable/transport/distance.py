"""`Distance`: a number that knows how it was computed and how far it may be off."""

from __future__ import annotations

from typing import Any


class Distance(float):
    """A Wasserstein distance: an ordinary float that carries its provenance.

    method: which algorithm produced it. exact: whether it is the optimum up to rounding. error: 0.0 when exact,
    otherwise an estimate or a bound of the absolute error, as the method states (NaN: unknown).
    metric: "chordal" |x-y| or "geodesic" angle(x, y), the ground distance. p: the exponent.

    >>> Distance(0.47777, method="circle", exact=True)
    0.4778 (exact, circle, chordal W2)
    >>> Distance(1.0, method="circle", exact=True) + 1
    2.0
    """

    method: str
    exact: bool
    error: float
    metric: str
    p: float

    def __new__(
        cls, value: float, *, method: str, exact: bool, error: float = 0.0, metric: str = "chordal", p: float = 2
    ) -> Distance:
        """A value with its provenance."""
        self = super().__new__(cls, value)
        self.method, self.exact, self.error = method, bool(exact), float(error)
        self.metric, self.p = metric, p
        return self

    def __repr__(self) -> str:
        how = "exact" if self.exact else f"error {self.error:.2g}"
        return f"{float(self):.4g} ({how}, {self.method}, {self.metric} W{self.p:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (float(self), self.method, self.exact, self.error, self.metric, self.p)


def _restored(value: float, method: str, exact: bool, error: float, metric: str, p: float) -> Distance:
    return Distance(value, method=method, exact=exact, error=error, metric=metric, p=p)
