"""`Target`: what random weights relax to, a matrix per head that rests or oscillates, with its exact response."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import integer, shown
from metastable.errors import InvalidInput
from metastable.measure import as_tensor

SYMMETRIC = 1e-10
"""Largest asymmetry, as a part of the largest entry, that counts as rounding: that of `flows.energy`."""
MOST_ENTRIES = 1 << 27
"""Most entries of the matrices of all heads at all times: one gigabyte in float64."""


@dataclass(frozen=True, eq=False)
class Target:
    """A_h(t) = C_h + R_h cos(w t + phi_h), entry by entry: symmetric matrices (H, d, d), one per head h.

    mean C, amplitude R and phase phi (H, d, d); frequency w (d, d). [arXiv:2605.18870] has two of them: `resting`,
    the identity, and `oscillating`, whose heads are shifted in time by 2 pi h/H.

    >>> Target.oscillating(2, heads=4)(0.0)[2].round(decimals=9).diagonal().tolist()  # half a turn ahead
    [0.5, 3.5]
    """

    mean: Float[Tensor, "h d d"]
    amplitude: Float[Tensor, "h d d"]
    frequency: Float[Tensor, "d d"]
    phase: Float[Tensor, "h d d"]

    def __post_init__(self) -> None:
        mean = symmetric_heads(self.mean, "mean")
        h, d, _ = mean.shape
        object.__setattr__(self, "mean", mean)
        for name, shape in (("amplitude", (h, d, d)), ("frequency", (d, d)), ("phase", (h, d, d))):
            given = as_tensor(getattr(self, name), name)
            if given.shape != shape or not bool(torch.isfinite(given).all()):
                raise InvalidInput(f"{name} of a target must be finite and of shape {shape}, got {shown(given)}")
            if not torch.equal(given, given.mT):
                raise InvalidInput(f"{name} of a target must be symmetric, and this one is not")
            object.__setattr__(self, name, given)

    @classmethod
    def resting(cls, d: int, heads: int = 1) -> Target:
        """A_h = I for all heads: plain Ornstein-Uhlenbeck weights."""
        d, heads = sizes(d, heads)
        none = torch.zeros(heads, d, d, dtype=torch.float64)
        return cls(torch.eye(d, dtype=torch.float64).expand(heads, d, d), none, none[0], none)

    @classmethod
    def oscillating(cls, d: int, heads: int = 1) -> Target:
        """The published targets, s = t + 2 pi h/H.

        d = 2: [[2 + 1.5 cos s, sin 2s], [sin 2s, 2 - 1.5 cos s]]; d = 3: [[2 + 1.5 cos s, sin 2s, sin s],
        [sin 2s, 2 + 1.5 sin s, cos 2s], [sin s, cos 2s, 2 + 1.5 cos(s + pi/4)]]; d >= 4: diagonal
        2 + 1.5 cos(s + 2 pi i/d), entry number p above it sin(2s + 2 pi p/(d (d - 1)/2)).
        """
        d, heads = sizes(d, heads)
        eye, quarter = torch.eye(d, dtype=torch.float64), math.pi / 2
        frequency, shift = 2 - eye, torch.full((d, d), -quarter, dtype=torch.float64)
        if d == 2:
            shift[0, 0], shift[1, 1] = 0.0, math.pi
        elif d == 3:
            shift[0, 0], shift[1, 1], shift[2, 2] = 0.0, -quarter, math.pi / 4
            shift[1, 2] = shift[2, 1] = 0.0
            frequency[0, 2] = frequency[2, 0] = 1.0
        else:
            turn = 2 * math.pi * torch.arange(d, dtype=torch.float64) / d
            upper = torch.triu_indices(d, d, 1)
            pair = 2 * math.pi * torch.arange(upper.shape[1], dtype=torch.float64) / max(1, upper.shape[1])
            shift[upper[0], upper[1]] = shift[upper[1], upper[0]] = pair - quarter
            shift.diagonal().copy_(turn)
        ahead = 2 * math.pi * torch.arange(heads, dtype=torch.float64) / heads
        phase = shift + frequency * ahead[:, None, None]
        return cls((2 * eye).expand(heads, d, d), (1 + 0.5 * eye).expand(heads, d, d), frequency, phase)

    @property
    def heads(self) -> int:
        """Number of heads H."""
        return len(self.mean)

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return int(self.mean.shape[1])

    def __call__(self, t: float | Float[Tensor, "m"]) -> Float[Tensor, "*m h d d"]:
        """A(t), for one time or for many."""
        return self.mean + self.amplitude * torch.cos(self._angle(t))

    def response(self, t: float | Float[Tensor, "m"]) -> Float[Tensor, "*m h d d"]:
        """p(t) with p' = A(t) - p: what weights without noise settle on, C + R (cos s + w sin s)/(1 + w^2)."""
        angle, w = self._angle(t), self.frequency
        return self.mean + self.amplitude * (torch.cos(angle) + w * torch.sin(angle)) / (1 + w.square())

    def _angle(self, t: float | Tensor) -> Tensor:
        time = as_tensor(t, "t")
        if time.ndim > 1 or not bool(torch.isfinite(time).all()):
            raise InvalidInput(f"t must be a finite time or a row of them, got {shown(t)}")
        return self.frequency * time[..., None, None, None] + self.phase

    def __repr__(self) -> str:
        moves = "oscillating" if bool((self.amplitude != 0).any()) else "resting"
        return f"Target({moves}, {self.heads} heads, d={self.d})"


def symmetric_heads(values: Any, name: str) -> Float[Tensor, "h d d"]:
    """Finite symmetric matrices (H, d, d); one matrix alone is one head. Rounding is taken out of the symmetry."""
    heads = as_tensor(values, name)
    heads = heads[None] if heads.ndim == 2 else heads
    if heads.ndim != 3 or heads.shape[1] != heads.shape[2] or 0 in heads.shape:
        raise InvalidInput(f"{name} must be matrices of shape (H, d, d), got {shown(heads)}")
    if not bool(torch.isfinite(heads).all()):
        raise InvalidInput(f"{name} must be finite, got a NaN or infinity")
    skew = (heads - heads.mT).abs().amax((1, 2))
    worst = int(torch.argmax(skew))
    if float(skew[worst]) > SYMMETRIC * float(heads[worst].abs().max()):
        raise InvalidInput(
            f"{name} must be symmetric, as the energy needs it, but head {worst} differs from its transpose by "
            f"{float(skew[worst]):.3g}"
        )
    return (heads / 2 + heads.mT / 2).contiguous()


def sizes(d: Any, heads: Any) -> tuple[int, int]:
    """Dimension d >= 2 and number of heads, such that the matrices of one time fit into memory."""
    d, heads = integer(d, "d", least=2), integer(heads, "heads", least=1)
    if heads * d * d > MOST_ENTRIES:
        raise InvalidInput(f"{shown(heads)} heads of dimension {shown(d)} are more than memory holds")
    return d, heads
