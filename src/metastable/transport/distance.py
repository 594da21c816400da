"""`Distance`: a number that knows how it was computed and how far it may be off."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from metastable.arguments import flag, instance, number
from metastable.errors import InvalidInput


class Distance(float):
    """A Wasserstein distance: an ordinary float that carries its provenance.

    method: which algorithm produced it. exact: whether it is the optimum up to rounding, which is about 1e-13 of
    the largest cost in W_p^p. error: 0.0 when exact, otherwise what the method states.
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
        self = super().__new__(cls, number(value, "value", least=0))
        self.method, self.metric = (instance(text, "a name", str, "a text") for text in (method, metric))
        self.exact, self.error = flag(exact, "exact"), number(error, "error", least=0)
        self.p = number(p, "p", least=1)
        return self

    def times(self, factor: float) -> Distance:
        """The distance in other units, with its error."""
        value = float(self) * factor
        if not math.isfinite(value):
            raise InvalidInput(f"the distance must fit into a float, got {float(self):g} times {factor:g}")
        return Distance(
            value, method=self.method, exact=self.exact, error=self.error * factor, metric=self.metric, p=self.p
        )

    def __repr__(self) -> str:
        how = "exact" if self.exact else f"error {self.error:.2g}"
        return f"{float(self):.4g} ({how}, {self.method}, {self.metric} W{self.p:g})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (float(self), self.method, self.exact, self.error, self.metric, self.p)


def _restored(value: float, method: str, exact: bool, error: float, metric: str, p: float) -> Distance:
    return Distance(value, method=method, exact=exact, error=error, metric=metric, p=p)


class Bounds(NamedTuple):
    """lower <= W_p <= upper: two numbers and not one, so `float()` of it is refused.

    `method` of each says which argument gave it, `error` is upper - lower.

    >>> low = Distance(0.25, method="means", exact=False, error=0.5)
    >>> Bounds(low, Distance(0.75, method="tree", exact=False, error=0.5))
    0.25 <= chordal W2 <= 0.75 (means, tree)
    """

    lower: Distance
    upper: Distance

    @property
    def exact(self) -> bool:
        """Never: a bracket is not the distance."""
        return False

    def __float__(self) -> float:
        raise InvalidInput(f"a bracket is not one number: {self!r}; take .lower or .upper")

    def __repr__(self) -> str:
        low, high = self
        name = f"{low.metric} W{low.p:g}"
        return f"{float(low):.4g} <= {name} <= {float(high):.4g} ({low.method}, {high.method})"


def bracket(lower: float, upper: float, methods: tuple[str, str], metric: str = "chordal", p: float = 2) -> Bounds:
    """Two bounds with the names of the arguments that gave them; rounding that crosses them is taken back."""
    gap = max(upper - lower, 0.0)
    low, high = (
        Distance(value, method=method, exact=False, error=gap, metric=metric, p=p)
        for value, method in zip((min(lower, upper), upper), methods, strict=True)
    )
    return Bounds(low, high)
