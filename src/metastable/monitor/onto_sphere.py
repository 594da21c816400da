"""`OntoSphere`: from the input of a layer to the points on the sphere that its attention reads."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.encoders.site import Site

LEAST_GAIN = 1e-3
"""A gain below this share of the largest is not undone: its coordinate holds nothing but rounding."""

NEGLIGIBLE = 1e-9
"""An eps of a norm below this changes the length of no point by more than rounding: variances of tokens are not
below 1e-3 in any encoder that was looked at."""


@dataclass(frozen=True, eq=False)
class OntoSphere:
    """x -> s at one place: behind a norm (x - b) / Gamma, before it x centred as it will, at the end x; |s| = 1."""

    inverse: Float[Tensor, "d"] | None
    shift: Float[Tensor, "d"] | None
    centred: bool
    exact: bool = False
    """Whether the norm that was undone has left points of length one, so that none is computed."""

    @classmethod
    def before(cls, site: Site, device: torch.device) -> OntoSphere:
        """The map at the input of a layer: its norm ends the layer before, or stands in the layer itself."""
        norm = site.layer.norm
        inside = site.layer.order == "pre" and any(module is site.norm for module in site.block.modules())
        if inside or not norm.spherical:
            return cls(None, None, norm.centred)
        gain = norm.gain
        small = gain.abs() < LEAST_GAIN * gain.abs().max()
        inverse = torch.where(small, torch.zeros_like(gain), 1.0 / gain) / math.sqrt(norm.d)
        exact = norm.eps < NEGLIGIBLE and not bool(small.any())
        return cls(inverse.float().to(device), (-norm.shift * inverse).float().to(device), False, exact)

    @cached_property
    def arrays(self) -> tuple[Float[np.ndarray, "_"], Float[np.ndarray, "_"]]:
        """1 / Gamma and -b / Gamma for compiled loops; both empty where no norm is undone."""
        if self.inverse is None or self.shift is None:
            return np.empty(0, np.float32), np.empty(0, np.float32)
        return self.inverse.numpy(), self.shift.numpy()

    def __call__(self, x: Float[Tensor, "b k d"], out: Float[Tensor, "b k d"]) -> None:
        """Points on the unit sphere, written to `out`."""
        if self.inverse is not None and self.shift is not None:
            torch.addcmul(self.shift, x.float(), self.inverse, out=out)
            if self.exact:
                return
        elif self.centred:
            torch.sub(x.float(), x.float().mean(dim=-1, keepdim=True), out=out)
        else:
            out.copy_(x)
        out.div_(torch.linalg.vector_norm(out, dim=-1, keepdim=True).clamp_min(1e-12))
