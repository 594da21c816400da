"""The zero-temperature flow solved exactly: positions at any time, and the distance to its limit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import choice
from metastable.flows.orbit import orbit, orbit_clock
from metastable.measure import Measure
from metastable.spectral import TOLERANCE
from metastable.sphere import chordal_distance, geodesic_distance
from metastable.theory.limit import limit, limit_map
from metastable.theory.tokens import check_weights, read_times, tokens
from metastable.transport import wasserstein
from metastable.transport.ground import METRICS
from metastable.weights import AttentionWeights


def zero_temperature(w: AttentionWeights, points: Any, t: Any) -> Float[Tensor, "*m n d"]:
    """x(t) = e^{tau M}x_0/|.|, dt/dtau = |B^T x(tau)|: the solution of x' = P_x V B^T x/|B^T x| (Z1).

    t a number: (n, d); t a sequence of m numbers >= 0: (m, n, d). No eigenvectors are involved, so any M will do;
    B must be invertible. The error is that of rounding (about 1e-13).

    >>> import metastable as ms
    >>> w = ms.AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> zero_temperature(w, [[0.6, 0.8]], 20.0)[0].round(decimals=6).tolist()
    [1.0, 0.0]
    """
    x0 = tokens(points, check_weights(w).d).points
    times = read_times(t)
    x = orbit(w.M, w.B, x0, np.atleast_1d(times))
    return x[0] if times.ndim == 0 else x


def clock(w: AttentionWeights, points: Any, t: Any) -> Float[Tensor, "*m n"]:
    """The projective time tau_i(t) of every token, dtau/dt = 1/|B^T x_i|; shapes as in `zero_temperature`."""
    x0 = tokens(points, check_weights(w).d).points
    times = read_times(t)
    tau = orbit_clock(w.M, w.B, x0, np.atleast_1d(times))
    return tau[0] if times.ndim == 0 else tau


def distance_to_limit(
    w: AttentionWeights, rho0: Any, t: Any, *, metric: str = "chordal", tolerance: float = TOLERANCE
) -> float | Float[Tensor, "m"]:
    """W2(rho_t, Pi#rho_0) of the zero-temperature flow, exact: a float for one t, a tensor (m,) for a sequence.

    M symmetric: Pi is the nearest-point map onto E and is constant along orbits, so it is the optimal coupling and
    W2^2 = E_rho0[2(1 - |P_E x(t)|)] chordal, E_rho0[arccos^2|P_E x(t)|] geodesic (Z5), for any rho_0. M not
    symmetric: the optimal transport problem is solved. A token in the exceptional set never reaches E; it counts
    with its cost in the first case and is left out with a warning in the second.

    >>> w = AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> round(distance_to_limit(w, [[0.6, 0.8]], 0.0) ** 2, 12)  # 2 (1 - 0.6)
    0.8
    """
    metric = choice(metric, "metric", METRICS)
    rho = tokens(rho0, check_weights(w).d)
    times = read_times(t)
    pi = limit_map(w, tolerance)
    path = orbit(w.M, w.B, rho.points, np.atleast_1d(times))
    if pi.spectrum.M.symmetric:
        distances = nearest_point_distance(pi.projector, path, rho.mass, metric)
    else:
        target = limit(w, rho, tolerance)
        distances = torch.tensor(
            [float(wasserstein(Measure(x, rho.mass), target, p=2, metric=metric)) for x in path],
            dtype=torch.float64,
        )
    return float(distances[0]) if times.ndim == 0 else distances


def coupling_to_limit(
    w: AttentionWeights, rho0: Any, t: Any, *, metric: str = "chordal", tolerance: float = TOLERANCE
) -> float | Float[Tensor, "m"]:
    """sqrt(E_rho0 |x(t) - Pi(x_0)|^2): the synchronous coupling, above `distance_to_limit` for any M."""
    metric = choice(metric, "metric", METRICS)
    rho = tokens(rho0, check_weights(w).d)
    times = read_times(t)
    pi = limit_map(w, tolerance)
    path = orbit(w.M, w.B, rho.points, np.atleast_1d(times))
    keep = ~pi.exceptional(rho.points)
    mass = rho.mass[keep] / rho.mass[keep].sum()
    target = pi(rho.points[keep])
    distance = chordal_distance if metric == "chordal" else geodesic_distance
    moved = path[:, keep]
    rms = torch.sqrt((mass * distance(moved, target.expand_as(moved)) ** 2).sum(1))
    return float(rms[0]) if times.ndim == 0 else rms


def nearest_point_distance(
    projector: Float[Tensor, "d d"], path: Float[Tensor, "m n d"], mass: Float[Tensor, "n"], metric: str = "chordal"
) -> Float[Tensor, "m"]:
    """sqrt(E 2(1 - |P_E x|)) (chordal) or sqrt(E arccos^2|P_E x|) (geodesic) of every frame of a path.

    With the orthogonal projector P_E that is W2 to the nearest law on E; an oblique one gives an estimate of it.
    """
    image = path @ projector.to(path).T
    onto, off = torch.linalg.vector_norm(image, dim=2), torch.linalg.vector_norm(path - image, dim=2)
    # 1 - |P_E x| = |P_perp x|^2/(1 + |P_E x|) keeps its digits when the tokens are nearly there.
    cost = 2 * off**2 / (1 + onto.clamp(max=1.0)) if metric == "chordal" else torch.atan2(off, onto) ** 2
    return torch.sqrt((mass * cost).sum(1))
