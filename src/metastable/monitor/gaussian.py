"""`Gaussian`: mean and covariance with Ledoit and Wolf's shrinkage, and the distance of Mahalanobis."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.errors import InvalidInput

FLOOR = 1e-4
"""Eigenvalues of a covariance are taken for at least this share of their mean: centred tokens have one that is zero
but for rounding, which would be divided by."""


@dataclass(frozen=True, eq=False)
class Gaussian:
    """|(x - mean) W|^2 with W W^T the inverse of (1 - a) S + a tr(S)/d I, a the share of Ledoit and Wolf.

    The columns of W are the principal directions by ascending variance; some of them may be left out.
    """

    mean: Float[Tensor, "d"]
    whiten: Float[Tensor, "d r"]

    @classmethod
    def fit(cls, rows: Float[Tensor, "n d"]) -> Gaussian:
        """The Gaussian of some rows."""
        moments = Moments(rows.shape[1], rows.device)
        moments.add(rows)
        return moments.gaussian()

    def outermost(self, most: int) -> Gaussian:
        """The same in `most` directions of least and `most` of largest variance."""
        r = self.whiten.shape[1]
        if 2 * most >= r:
            return self
        return Gaussian(self.mean, torch.cat((self.whiten[:, :most], self.whiten[:, r - most :]), dim=1))

    def thinned(self, most: int) -> Gaussian:
        """The same in about `most` directions, evenly spread from the least variance to the largest."""
        step = max(1, self.whiten.shape[1] // most)
        return Gaussian(self.mean, self.whiten[:, ::step].contiguous())

    def whitened(self, rows: Float[Tensor, "*b d"]) -> Float[Tensor, "*b r"]:
        """(x - mean) W for every row."""
        flat = torch.addmm(self.origin, rows.reshape(-1, rows.shape[-1]), self.whiten)
        return flat.view(*rows.shape[:-1], -1)

    def distance(self, rows: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
        """Squared distance of Mahalanobis of every row."""
        return torch.linalg.vector_norm(self.whitened(rows), dim=-1).square()

    def typical(self, rows: Float[Tensor, "*b d"]) -> Float[Tensor, "*b"]:
        """The squared distance per direction: one in the mean."""
        flat = torch.addmm(self.origin, rows.reshape(-1, rows.shape[-1]), self.whiten)
        return torch.from_numpy(_mean_squares(flat.numpy())).view(rows.shape[:-1])

    @cached_property
    def origin(self) -> Float[Tensor, "r"]:
        """-mean W: a product as dear as that of a text, made once."""
        return -(self.mean @ self.whiten)


@numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
def _mean_squares(rows):  # type: ignore[no-untyped-def]
    """The mean square of every row, in one call."""
    found = np.empty(len(rows), np.float32)
    for i in range(len(rows)):
        total = np.float32(0)
        for a in range(rows.shape[1]):
            total += rows[i, a] * rows[i, a]
        found[i] = total / np.float32(rows.shape[1])
    return found


class Moments:
    """Sums over rows from which the Gaussian follows; rows are added batch by batch and not kept.

    Rows are shifted by the mean of the first batch, so that the fourth moment of Ledoit and Wolf's share, which is
    taken about that point, is nearly that about the mean.
    """

    def __init__(self, d: int, device: torch.device | str = "cpu") -> None:
        self.n = 0
        self.shift: Tensor | None = None
        self.sum = torch.zeros(d, dtype=torch.float64, device=device)
        self.outer = torch.zeros(d, d, dtype=torch.float64, device=device)
        self.fourth = 0.0

    def add(self, rows: Float[Tensor, "n d"]) -> None:
        """Take more rows into account."""
        if not len(rows):
            return
        x = rows.double()
        if self.shift is None:
            self.shift = x.mean(dim=0)
        x = x - self.shift
        self.n += len(x)
        self.sum += x.sum(dim=0)
        self.outer += x.mT @ x
        self.fourth += float(x.square().sum(dim=1).square().sum())

    def law(self) -> tuple[Float[Tensor, "d"], Float[Tensor, "d d"]]:
        """Mean and covariance, nothing shrunk."""
        if self.n < 2 or self.shift is None:
            raise InvalidInput(f"a covariance needs at least two rows, got {self.n}")
        mean = self.sum / self.n
        return self.shift + mean, self.outer / self.n - torch.outer(mean, mean)

    def gaussian(self) -> Gaussian:
        """Mean, and the inverse root of the shrunk covariance (Ledoit & Wolf, 2004)."""
        mean, covariance = self.law()
        d = len(mean)
        size = float(covariance.diagonal().mean())
        apart = float(
            (covariance - size * torch.eye(d, dtype=torch.float64, device=covariance.device)).square().sum()
        )
        noise = max(0.0, (self.fourth / self.n - float(covariance.square().sum())) / self.n)
        share = min(1.0, noise / apart) if apart > 0 else 1.0
        values, vectors = torch.linalg.eigh(covariance)
        shrunk = ((1 - share) * values + share * size).clamp_min(FLOOR * max(size, 1e-300))
        whiten = vectors * shrunk.rsqrt()
        return Gaussian(mean.float(), whiten.float())
