"""What the transpose of the derivative of attention is given, whichever way it is computed."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor


class Backwards(NamedTuple):
    """Attention of n queries, scaled by beta, to n keys, and cotangents g of its means, minus s of its log Z."""

    queries: Float[Tensor, "n d"]
    keys: Float[Tensor, "n d"]
    log_mass: Float[Tensor, "n"]
    log_partition: Float[Tensor, "n"]
    cotangent: Float[Tensor, "n d"]
    shift: Float[Tensor, "n"]
    mean: Float[Tensor, "n d"]
    """Of the keys, as attention found it."""

    def double(self) -> Backwards:
        """The same in float64."""
        return Backwards(*(part.double() for part in self))
