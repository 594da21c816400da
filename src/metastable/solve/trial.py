"""`Trial`: one step of an embedded pair as a whole, made by others than the loop over its stages."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from metastable.flows.drift import Velocity


class Made(NamedTuple):
    """What a trial made: the tokens after it, the velocity there if it is known, and the error."""

    points: Float[Tensor, "n d"]
    velocity: Velocity | None
    error: float
    """Relative to what is allowed; infinite where anything is not finite."""
    evaluations: int = 0
    """Of the field, where nobody else has counted them."""
    later: Callable[[Float[Tensor, "n d"]], Velocity] | None = None
    """Writes the velocity there into given memory, by one evaluation more, until another trial is made."""


@runtime_checkable
class Trial(Protocol):
    """All stages of a step at once, for a field that does not depend on time."""

    def __call__(self, points: Float[Tensor, "n d"], slope: Float[Tensor, "n d"], h: float) -> Made:
        """A step of size h from points with that velocity."""

    def stages(
        self, points: Float[Tensor, "n d"], slope: Float[Tensor, "n d"], h: float
    ) -> Float[Tensor, "s n d"] | None:
        """The stages of that step, those of the interpolant among them; None where they are in the memory."""
