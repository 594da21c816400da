"""What an initial law rho_0 of the mean field is: a density relative to the uniform probability measure sigma.

A law is callable, `law(points) -> (n,)`, so it goes wherever a density is asked for; it knows its dimension, and it
can be sampled, so that iid tokens and the mean field start from one and the same object.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable import sphere
from metastable.arguments import OneLine, integer, number, shown
from metastable.errors import InvalidInput, MetastableError, NotDefined
from metastable.measure import Measure, as_measure, as_tensor
from metastable.rowwise import dense

MOST_AT_ONCE, MOST_PER_TOKEN = 2**20, 1000
"""Proposals of the rejection sampler: at once, 80 MB at d = 10, and per token before it gives up."""
LARGEST, LEAST_INTEGRAL = 1e200, 1e-200
"""Range of a density and of its integral: a million values can be summed and divided by their sum without overflow
and without losing digits to underflow."""


class Law(OneLine, ABC):
    """A probability law on S^{d-1} with a density f = d rho_0 / d sigma (sigma uniform, of total mass one)."""

    d: int

    @abstractmethod
    def __call__(self, points: Float[Tensor, "n d"]) -> Float[Tensor, "n"]:
        """The density relative to the uniform probability measure."""

    def integral(self) -> float | None:
        """The integral of the density, where it is known: a quadrature that misses a part of it shows there."""
        return 1.0

    def parts(self) -> list[tuple[float, Law]]:
        """The laws that this one is a mixture of, with weights that sum to one."""
        return [(1.0, self)]

    def peaks(self) -> Float[Tensor, "m d"]:
        """Where the law is narrow, so that a quadrature knows where to look."""
        return torch.empty((0, self.d), dtype=torch.float64)

    def sample(self, n: int, seed: int = 0) -> Float[Tensor, "n d"]:
        """n iid tokens from the law, by rejection from the uniform law unless the law knows better."""
        n, seed = asked(n, seed)
        generator = torch.Generator().manual_seed(seed)
        bound = self._bound()
        kept: list[Tensor] = []
        missing, proposed = n, 0
        while missing > 0:
            proposal = sphere.uniform(int(min(max(64.0, 1.2 * bound * missing), MOST_AT_ONCE)), self.d, generator)
            proposed += len(proposal)
            if proposed > MOST_PER_TOKEN * n + MOST_AT_ONCE:
                raise InvalidInput(
                    f"the bound {bound:g} is too far above the density: {missing} of {n} tokens miss"
                )
            height = bound * torch.rand(len(proposal), dtype=torch.float64, generator=generator)
            density = self(proposal)
            if bool((density > bound).any()):
                raise InvalidInput(
                    f"the density exceeds its bound {bound:g}; give Density(..., bound=) a larger one"
                )
            kept.append(proposal[height < density][:missing])
            missing -= len(kept[-1])
        return torch.cat(kept)

    def _bound(self) -> float:
        raise NotDefined(f"{type(self).__name__} has no known upper bound of its density; give bound=")


@dataclass(frozen=True, eq=False, repr=False)
class Density(Law):
    """A density given as a function of the points (n, d); it need not be normalised, `bound` serves sampling."""

    function: Callable[[Tensor], Any]
    d: int
    bound: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InvalidInput(
                f"density must be a law, a Measure or a function of points, got {shown(self.function)}"
            )
        object.__setattr__(self, "d", integer(self.d, "d", least=2))
        if self.bound is not None:
            object.__setattr__(self, "bound", number(self.bound, "bound", above=0))

    def __call__(self, points: Tensor) -> Tensor:
        """The function's values, checked: shape (n,), finite, >= 0."""
        return checked_density(self.function, rows(points, self.d))

    def integral(self) -> float | None:
        """Not known."""
        return None

    def _bound(self) -> float:
        return super()._bound() if self.bound is None else self.bound


@dataclass(frozen=True, eq=False, repr=False)
class Empirical(Law):
    """The empirical law of given tokens (those of a trained model, say): it has masses, not a density."""

    measure: Measure

    def __post_init__(self) -> None:
        object.__setattr__(self, "measure", as_measure(self.measure))

    @property
    def d(self) -> int:  # type: ignore[override]
        """Dimension of the ambient space."""
        return self.measure.d

    def __call__(self, points: Tensor) -> Tensor:
        """Refused: atoms have no density."""
        raise NotDefined(
            "an empirical law has no density relative to the uniform measure; its nodes are its tokens"
        )

    def sample(self, n: int, seed: int = 0) -> Tensor:
        """n tokens drawn with replacement."""
        n, seed = asked(n, seed)
        generator = torch.Generator().manual_seed(seed)
        return self.measure.points[torch.multinomial(self.measure.mass, n, replacement=True, generator=generator)]


def asked(n: Any, seed: Any) -> tuple[int, int]:
    """A number of tokens and a seed, or a sentence."""
    return integer(n, "n", least=1, most=2**31), integer(seed, "seed", least=0, most=2**62)


def rows(points: Any, d: int) -> Float[Tensor, "n d"]:
    """Points (n, d) as a tensor, or a sentence."""
    read = points if dense(points) and points.is_floating_point() else as_tensor(points, "points")
    if read.ndim != 2 or read.shape[1] != d:
        raise InvalidInput(f"points must have shape (n, {d}), got shape {tuple(read.shape)}")
    return read


def unit_vector(values: Any, name: str, d: int | None = None) -> Float[Tensor, "d"]:
    """A direction of any length as a unit vector, of dimension d where that is given."""
    vector = as_tensor(values, name)
    largest = float(vector.abs().max()) if vector.ndim == 1 and len(vector) >= 2 else math.nan
    if not (math.isfinite(largest) and largest > 0) or (d is not None and len(vector) != d):
        shape = "(d,)" if d is None else f"({d},)"
        raise InvalidInput(f"{name} must be a finite non-zero vector of shape {shape}, got {shown(values)}")
    scaled = vector / largest
    return scaled / torch.linalg.vector_norm(scaled)


def as_law(density: Any, d: int) -> Law:
    """A law as it is, a `Measure` as an empirical law, a function as a density; of dimension d or refused."""
    if isinstance(density, Measure):
        density = Empirical(density)
    law = density if isinstance(density, Law) else Density(density, d)
    if law.d != d:
        raise InvalidInput(f"the initial law lives in d = {law.d} but the weights in d = {shown(d)}")
    return law


def checked_density(function: Callable[[Tensor], Any], points: Tensor) -> Tensor:
    """Values (n,) of a density at points (n, d), refused when of the wrong shape, not finite, negative or huge."""
    try:
        values = as_tensor(function(points), "density(points)")
    except MetastableError:
        raise
    except Exception as error:  # a stranger's function
        raise InvalidInput(
            f"density must be a function of points (n, {points.shape[1]}), but it raised {shown(error)}"
        ) from error
    if values.shape != (len(points),):
        raise InvalidInput(
            f"density must return shape ({len(points)},) for points of shape {tuple(points.shape)}, "
            f"got shape {tuple(values.shape)}"
        )
    if not bool(torch.isfinite(values).all()):
        index = int((~torch.isfinite(values)).nonzero()[0])
        raise InvalidInput(f"density must be finite, got {float(values[index])} at {shown(points[index].tolist())}")
    if bool((values < 0).any()):
        index = int(values.argmin())
        raise InvalidInput(f"density must be >= 0, got {float(values[index])} at {shown(points[index].tolist())}")
    if bool((values > LARGEST).any()):
        index = int(values.argmax())
        raise InvalidInput(
            f"density must be <= {LARGEST:g}, got {float(values[index]):g} at {shown(points[index].tolist())}"
        )
    return values
