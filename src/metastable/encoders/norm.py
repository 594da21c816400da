"""`Norm`: the normalisation in front of attention, which puts tokens on a sphere before it stretches them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from metastable.arguments import OneLine


@dataclass(frozen=True, eq=False, repr=False)
class Norm(OneLine):
    """x = sqrt(d) Gamma s + b with |s| = 1: LayerNorm (s is also centred, sum_k s_k = 0), RMSNorm, or none.

    gain: the diagonal of Gamma (d,). shift: b (d,). kind: "layer", "rms" or "none". Without a norm s = x / sqrt(d)
    is no point of the sphere, and `spherical` says so.
    """

    gain: Float[Tensor, "d"]
    shift: Float[Tensor, "d"]
    kind: str
    eps: float

    @classmethod
    def of(cls, module: nn.Module | None, d: int) -> Norm:
        """The norm that a torch module applies; None (or an identity) means that there is no norm."""
        ones, zeros = torch.ones(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)
        if module is None or isinstance(module, nn.Identity):
            return cls(ones, zeros, "none", 0.0)
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        gain = ones if weight is None else weight.detach().double().cpu()
        shift = zeros if bias is None else bias.detach().double().cpu()
        kind = "rms" if "rms" in type(module).__name__.lower() else "layer"
        eps = next((getattr(module, n) for n in ("eps", "variance_epsilon") if hasattr(module, n)), None)
        return cls(gain, shift, kind, float(torch.finfo(torch.float32).eps if eps is None else eps))

    def to(self, device: Any) -> Norm:
        """The same norm on another device."""
        return replace(self, gain=self.gain.to(device), shift=self.shift.to(device))

    @property
    def d(self) -> int:
        """Dimension of the tokens."""
        return int(self.gain.shape[0])

    @property
    def centred(self) -> bool:
        """Whether the norm removes the mean of a token's coordinates (LayerNorm does, RMSNorm does not)."""
        return self.kind == "layer"

    @property
    def spherical(self) -> bool:
        """Whether s lies on the unit sphere."""
        return self.kind != "none"

    @property
    def d_eff(self) -> int:
        """Dimension of the space that holds the sphere: d, or d - 1 for centred tokens."""
        return self.d - 1 if self.centred else self.d

    def points(self, before: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """s from the input of the norm, exactly as the norm computes it (|s| < 1 by the norm's eps)."""
        u = before.double()
        if self.kind == "none":
            return u / math.sqrt(self.d)
        if self.centred:
            u = u - u.mean(dim=1, keepdim=True)
        return u / torch.sqrt(u.square().sum(dim=1, keepdim=True) + self.d * self.eps)

    def centre(self, rows: Float[Tensor, "*batch d"]) -> Float[Tensor, "*batch d"]:
        """C y = y - mean(y) for every row when the norm centres, else the rows as they are."""
        return rows - rows.mean(dim=-1, keepdim=True) if self.centred else rows
