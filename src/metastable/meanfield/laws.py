"""Initial laws with a name: uniform, von Mises-Fisher, skewed, trigonometric, and what is made of other laws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scipy import special
from torch import Tensor

from metastable import sphere
from metastable.arguments import instance, integer, number, numbers, sequence, shown
from metastable.errors import InvalidInput
from metastable.meanfield.law import Law, asked, rows, unit_vector
from metastable.measure import as_tensor

MOST_KAPPA = 1e9
"""Largest concentration: a width of 3e-5, the end of what SciPy's Bessel functions take; narrower is a token."""


@dataclass(frozen=True, repr=False)
class Uniform(Law):
    """The uniform law, f = 1.

    >>> Uniform(3)(sphere.fibonacci(2)).tolist()
    [1.0, 1.0]
    """

    d: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", integer(self.d, "d", least=2))

    def __call__(self, points: Tensor) -> Tensor:
        """f = 1."""
        points = rows(points, self.d)
        return torch.ones(len(points), dtype=points.dtype)

    def _bound(self) -> float:
        return 1.0


@dataclass(frozen=True, eq=False, repr=False)
class VonMisesFisher(Law):
    """f(x) = c e^{kappa <mean, x>}, 1/c = Gamma(d/2) (2/kappa)^{d/2-1} I_{d/2-1}(kappa).

    >>> round(float(VonMisesFisher([0.0, 0.0, 1.0], 2.0)(torch.tensor([[0.0, 0.0, 1.0]]))), 6)  # 2 e^2/sinh(2)
    4.074629
    """

    mean: Any
    kappa: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean", unit_vector(self.mean, "mean"))
        object.__setattr__(self, "kappa", number(self.kappa, "kappa", least=0, most=MOST_KAPPA))

    @property
    def d(self) -> int:  # type: ignore[override]
        """Dimension of the ambient space."""
        return int(self.mean.shape[0])

    def __call__(self, points: Tensor) -> Tensor:
        """c e^{kappa <mean, x>}, without overflow and, as <mean, x> - 1 = -|x - mean|^2/2, without cancellation."""
        apart = (rows(points, self.d).to(torch.float64) - self.mean).square().sum(1)
        return torch.exp(-0.5 * self.kappa * apart - self._log_mean_exponential())

    def peaks(self) -> Tensor:
        """The mean."""
        return self.mean[None]

    def _log_mean_exponential(self) -> float:
        """log E_sigma e^{kappa (<mean, x> - 1)}."""
        order = self.d / 2 - 1
        if self.kappa == 0:
            return 0.0
        return float(
            special.gammaln(self.d / 2)
            + order * math.log(2 / self.kappa)
            + math.log(special.ive(order, self.kappa))
        )

    def sample(self, n: int, seed: int = 0) -> Tensor:
        """n iid tokens by Wood's sampler."""
        n, seed = asked(n, seed)
        return sphere.von_mises_fisher(n, self.mean, self.kappa, seed)


@dataclass(frozen=True, eq=False, repr=False)
class Skewed(Law):
    """f(x) = 1 + strength <direction, x>, |strength| <= 1: the simplest law that is not antipodally symmetric.

    On the circle with `direction` on E this is the law of the floor formula E2.
    """

    direction: Any
    strength: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", unit_vector(self.direction, "direction"))
        object.__setattr__(self, "strength", number(self.strength, "strength", least=-1, most=1))

    @property
    def d(self) -> int:  # type: ignore[override]
        """Dimension of the ambient space."""
        return int(self.direction.shape[0])

    def __call__(self, points: Tensor) -> Tensor:
        """1 + strength <direction, x>."""
        points = rows(points, self.d)
        return 1 + self.strength * (points.to(torch.float64) @ self.direction)

    def _bound(self) -> float:
        return 1 + abs(self.strength)


@dataclass(frozen=True, eq=False, repr=False)
class Harmonics(Law):
    """On the circle: f(theta) = 1 + sum_k cosine[k-1] cos(k theta) + sine[k-1] sin(k theta).

    >>> Harmonics(cosine=[0.5])(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).tolist()
    [1.5, 0.5]
    """

    cosine: Sequence[float] = ()
    sine: Sequence[float] = ()
    d: int = 2

    def __post_init__(self) -> None:
        for name in ("cosine", "sine"):
            object.__setattr__(self, name, tuple(numbers(getattr(self, name), name)))
        if integer(self.d, "d") != 2:
            raise InvalidInput(f"harmonics live on the circle, d = 2, got d = {shown(self.d)}")
        theta = torch.linspace(0, 2 * math.pi, 64 * (len(self.cosine) + len(self.sine) + 1), dtype=torch.float64)
        if float(self._values(theta).min()) < 0:
            raise InvalidInput(
                f"the harmonics must give a density >= 0, got {float(self._values(theta).min()):.6g}"
            )

    def _values(self, theta: Tensor) -> Tensor:
        total = torch.ones_like(theta)
        for k, (a, b) in enumerate(_padded(self.cosine, self.sine), start=1):
            total = total + a * torch.cos(k * theta) + b * torch.sin(k * theta)
        return total

    def __call__(self, points: Tensor) -> Tensor:
        """The trigonometric polynomial at the angles of the points."""
        return self._values(sphere.angles(rows(points, 2).to(torch.float64)))

    def _bound(self) -> float:
        return 1 + sum(math.hypot(a, b) for a, b in _padded(self.cosine, self.sine))


def reference_skew() -> Harmonics:
    """The skewed law of the reference cases, f = 1 + .5 cos(theta - 1) + .3 sin 2 theta."""
    return Harmonics(cosine=(0.5 * math.cos(1.0), 0.0), sine=(0.5 * math.sin(1.0), 0.3))


@dataclass(frozen=True, eq=False, repr=False)
class Mixture(Law):
    """f = sum_i weights[i] f_i of laws of one dimension; weights are scaled to sum to one."""

    laws: Sequence[Law]
    weights: Any = None

    def __post_init__(self) -> None:
        laws = sequence(self.laws, "laws", Law, "laws")
        if not laws or len({law.d for law in laws}) > 1:
            raise InvalidInput(f"a mixture needs laws of one dimension, got d = {shown([law.d for law in laws])}")
        given = [1.0] * len(laws) if self.weights is None else self.weights
        weights = as_tensor(given, "weights")
        if (
            weights.shape != (len(laws),)
            or not bool((weights >= 0).all())
            or not 0 < float(weights.sum()) < math.inf
        ):
            raise InvalidInput(f"weights must be {len(laws)} numbers >= 0 with a positive sum, got {shown(given)}")
        object.__setattr__(self, "laws", laws)
        object.__setattr__(self, "weights", weights / weights.sum())

    @property
    def d(self) -> int:  # type: ignore[override]
        """Dimension of the ambient space."""
        return self.laws[0].d

    def __call__(self, points: Tensor) -> Tensor:
        """The weighted sum of the densities."""
        parts = [weight * law(points) for weight, law in zip(self.weights, self.laws, strict=True)]
        return torch.stack(parts).sum(0)

    def parts(self) -> list[tuple[float, Law]]:
        """Those of the laws; what is a part of a part is a part."""
        pairs = zip(self.weights.tolist(), self.laws, strict=True)
        return [(weight * share, part) for weight, law in pairs if weight > 0 for share, part in law.parts()]

    def integral(self) -> float | None:
        """One, unless a part is of unknown integral."""
        return None if any(law.integral() is None for law in self.laws) else 1.0

    def peaks(self) -> Tensor:
        """Those of the parts."""
        return torch.cat([law.peaks() for law in self.laws])

    def sample(self, n: int, seed: int = 0) -> Tensor:
        """n iid tokens: a component for every token, then a token of that component."""
        n, seed = asked(n, seed)
        generator = torch.Generator().manual_seed(seed)
        which = torch.multinomial(self.weights, n, replacement=True, generator=generator)
        points = torch.empty(n, self.d, dtype=torch.float64)
        for i, law in enumerate(self.laws):
            chosen = which == i
            if bool(chosen.any()):
                points[chosen] = law.sample(int(chosen.sum()), seed=seed + 7919 * (i + 1))
        return points


@dataclass(frozen=True, eq=False, repr=False)
class Symmetrized(Law):
    """f(x) = (g(x) + g(-x))/2: the antipodally symmetric part of a law, for which the floor E2 vanishes."""

    law: Law

    def __post_init__(self) -> None:
        instance(self.law, "law", Law, "a law of metastable.meanfield")

    @property
    def d(self) -> int:  # type: ignore[override]
        """Dimension of the ambient space."""
        return self.law.d

    def __call__(self, points: Tensor) -> Tensor:
        """(g(x) + g(-x))/2."""
        points = rows(points, self.d)
        return (self.law(points) + self.law(-points)) / 2

    def parts(self) -> list[tuple[float, Law]]:
        """Those of the law, each in two halves."""
        return [half for share, part in self.law.parts() for half in _halves(share, part)]

    def integral(self) -> float | None:
        """That of the law."""
        return self.law.integral()

    def peaks(self) -> Tensor:
        """Those of the law and their antipodes."""
        return torch.cat([self.law.peaks(), -self.law.peaks()])

    def sample(self, n: int, seed: int = 0) -> Tensor:
        """n iid tokens of the law with random signs."""
        n, seed = asked(n, seed)
        sign = torch.randint(0, 2, (n, 1), generator=torch.Generator().manual_seed(seed + 104729)) * 2 - 1
        return self.law.sample(n, seed) * sign


def _halves(share: float, part: Law) -> list[tuple[float, Law]]:
    if isinstance(part, VonMisesFisher):
        return [(share / 2, VonMisesFisher(sign * part.mean, part.kappa)) for sign in (1, -1)]
    return [(share, Symmetrized(part))]


def _padded(a: Sequence[float], b: Sequence[float]) -> list[tuple[float, float]]:
    length = max(len(a), len(b))
    return list(zip(list(a) + [0.0] * (length - len(a)), list(b) + [0.0] * (length - len(b)), strict=True))
