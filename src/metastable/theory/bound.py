"""The rigorous bound of W2 to the limit along a run: what the defects of its velocity allow (S3, S6-S8)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.errors import InvalidInput
from metastable.flows import SelfAttention
from metastable.flows.orbit import orbit
from metastable.measure import Measure
from metastable.sphere import geodesic_distance, normalize
from metastable.theory.contraction import Push, angle_between
from metastable.theory.limit import LimitMap
from metastable.theory.spectrum import Spectrum
from metastable.theory.stability import accumulated_bound, check_path, defects, highest
from metastable.theory.token_angles import comparison, distance, token_angles
from metastable.weights import AttentionWeights

SAME_START = 1e-5
"""How far the first tokens of a path may be from those of the forecast: what single precision leaves of them."""


@dataclass(frozen=True, eq=False)
class Bound:
    """W2(rho_t^beta, Pi#rho_0) <= min(2, zero + drift, contraction) for the tokens of one run.

    zero:        exact zero-temperature distance.
    drift:       distance of the run from the zero-temperature one, by one Lipschitz constant (S3).
    contraction: from the angle of every token to its limit (S6-S8), which contracts outside a thin strip.
    unresolved:  how many of the n tokens were found beyond their own bound, since the saved times are too far apart
                 to resolve their defect; their bound went on from where they were.
    """

    times: Float[Tensor, "m"]
    zero: Float[Tensor, "m"]
    drift: Float[Tensor, "m"]
    contraction: Float[Tensor, "m"]
    n: int
    unresolved: int

    @property
    def values(self) -> Float[Tensor, "m"]:
        """The bound at `times`."""
        return torch.clamp(torch.minimum(self.zero + self.drift, self.contraction), max=2.0)

    @property
    def label(self) -> str:
        """What is bounded, for a legend."""
        return f"rigorous bound for this run of {self.n} tokens"

    def __repr__(self) -> str:
        return f"Bound({len(self.times)} times, {float(self.values[-1]):.4g} at t = {float(self.times[-1]):g})"


def bound_along(s: Spectrum, beta: float, path: Any, L0: float, zero: Float[Tensor, "m"]) -> Bound:
    """The bound along a path of the softmax flow from time 0; `zero` is the zero-temperature distance at its times.

    Of the run v_beta - v_0 at the saved times is used, token by token, and its direction. Between two of them the
    larger value counts plus twice what a parabola through the neighbours can rise above it. A token that is found
    beyond its bound at a saved time is `unresolved`: its bound goes on from there, and is none between those times.
    """
    times, mass = check_path(path, s.weights.d), path.mass.to(torch.float64).numpy()
    x = normalize(path.points.to(torch.float64))
    target, ways = limits(s, x[0]), orbit(s.M.matrix, s.weights.B, x[0], times)
    orbits = orbit_angles(s, ways, target)
    system, steps = comparison(s), np.diff(times)
    around = np.maximum(np.append(steps, 0.0), np.insert(steps, 0, 0.0))
    rms, seen = [], []
    for frame, h in zip(x, around, strict=True):
        delta = defects(s.weights, beta, frame, path.mass)
        size = np.linalg.norm(delta, axis=1)
        rms.append(math.sqrt(float((mass * size**2).sum())))
        push = system.push(frame.numpy(), target, delta, h) if system else Push(size, size, size, size)
        seen.append(np.stack([push.size, push.away, push.lift, push.turn]))
    pushes = [Push(*parts) for parts in highest(np.stack(seen))]
    places = zip(x[1:].numpy(), geodesic_distance(x, ways)[1:].numpy(), strict=True)
    angles, unresolved = token_angles(system, x[0].numpy(), target, orbits, steps, pushes, L0, places)
    return Bound(
        torch.from_numpy(times),
        zero,
        accumulated_bound(times, rms, L0, upper=True),
        torch.from_numpy(distance(angles, mass)),
        len(mass),
        unresolved,
    )


def limits(s: Spectrum, x0: Tensor) -> np.ndarray:
    """Pi(x_0) of every token, NaN in the exceptional set."""
    pi = LimitMap(s)
    bad = pi.exceptional(x0) if s.kind != "identity" else torch.zeros(len(x0), dtype=torch.bool)
    target = torch.full_like(x0, torch.nan)
    if not bool(bad.all()):
        target[~bad] = pi(x0[~bad])
    found: np.ndarray = target.numpy()
    return found


def orbit_angles(s: Spectrum, orbits: Float[Tensor, "m n d"], target: np.ndarray) -> np.ndarray:
    """Angles between the zero-temperature orbits and their limits.

    Without a limit: pi/2 for symmetric M, where a token of the exceptional set stays orthogonal to E, else pi.
    """
    angle = angle_between(orbits.numpy(), target)
    return np.where(np.isnan(angle), np.pi / 2 if s.M.symmetric else np.pi, angle)


def check_run(path: Any, w: AttentionWeights, beta: float, rho0: Measure) -> None:
    """Refuse a run that is not one of the softmax flow of these weights at this beta from rho_0."""
    check_path(path, rho0.d)
    ran = path.provenance.get("parameters", {}).get("flow", {})
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
