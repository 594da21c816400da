"""The rigorous bound of W2 to the limit along a run: exact zero-temperature distance plus accumulated drift
(S3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.errors import InvalidInput
from metastable.flows import SelfAttention
from metastable.measure import Measure
from metastable.weights import AttentionWeights

SAME_START = 1e-5
"""How far the first tokens of a path may be from those of the forecast: what single precision leaves of them."""


@dataclass(frozen=True, eq=False)
class Bound:
    """W2(rho_t^beta, Pi#rho_0) <= min(2, zero + drift): exact zero-temperature distance plus the drift bound S3."""

    times: Float[Tensor, "m"]
    zero: Float[Tensor, "m"]
    drift: Float[Tensor, "m"]

    @property
    def values(self) -> Float[Tensor, "m"]:
        """The bound at `times`."""
        return torch.clamp(self.zero + self.drift, max=2.0)


def check_run(path: Any, w: AttentionWeights, beta: float, rho0: Measure) -> None:
    """Refuse a run that is not one of the softmax flow of these weights at this beta from rho_0."""
    ran = getattr(path, "provenance", {}).get("parameters", {}).get("flow", {})
    own = SelfAttention(w, beta=beta).describe()
    if ran.get("flow", own["flow"]) != own["flow"]:
        raise InvalidInput(f"the bound is for a path of the flow {own['flow']}, got a path of {ran['flow']}")
    if ran.get("beta", beta) != beta:
        raise InvalidInput(f"the forecast is for beta = {beta:g}, but the path was run at {ran['beta']}")
    if ran.get("weights", {}).get("sha256") not in (None, own["weights"]["sha256"]):
        raise InvalidInput("the path was run with other weights than those of the forecast")
    points = path.points
    if tuple(points.shape[1:]) != (rho0.n, rho0.d):
        raise InvalidInput(
            f"the forecast is for {rho0.n} tokens in dimension {rho0.d}, but the path holds "
            f"{points.shape[1]} tokens in dimension {points.shape[2]}"
        )
    away = float((points[0].to(rho0.points) - rho0.points).abs().max())
    heavier = float((path.mass.to(rho0.mass) - rho0.mass).abs().max())
    if away > SAME_START or heavier > SAME_START:
        raise InvalidInput(
            f"the path must start from the tokens of the forecast, got tokens up to {away:.3g} away and masses "
            f"up to {heavier:.3g} different"
        )
