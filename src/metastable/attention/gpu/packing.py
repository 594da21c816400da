"""Keys packed for the kernels of d, d_v <= 8: what is packed, where the masses go, and what packed keys can do."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.gpu.frame import Frame


class Masses(enum.Enum):
    """Where the masses go."""

    EQUAL = "nowhere"
    IN_VALUES = "into the values, and the sum of the weights"
    AS_LOG = "as log2 into the scores"


@dataclass(frozen=True, eq=False)
class Packing:
    """Keys, values and masses on the device, and how they are to be packed."""

    keys: Float[Tensor, "k d"]
    values: Float[Tensor, "k v"]
    mass: Float[Tensor, "k"]
    frame: Frame
    masses: Masses
    shifted: bool
    """Whether the exponents are shifted row by row."""
    precision: torch.dtype
    """float32 or float64, of the sums."""


class PackedKeys(Protocol):
    """Packed keys, and the passes over them."""

    def __init__(self, packing: Packing) -> None:
        """Pack the keys."""

    def sums(self, queries: Tensor, given: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """(sums (chunks, d_v + 1, n_q), shifts (n_q,)) of the queries; shifts are `given`, or |q| max|k - c|."""

    def maximum(self, queries: Tensor) -> Tensor:
        """The true maximum of every row, in bits, rounded up to a whole number as the bound is."""
