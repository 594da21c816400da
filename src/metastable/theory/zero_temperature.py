"""The zero-temperature flow solved exactly: positions at any time, and the distance to its limit."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from metastable.errors import InvalidInput
from metastable.flows.orbit import orbit, orbit_clock
from metastable.measure import as_measure
from metastable.weights import AttentionWeights


def zero_temperature(w: AttentionWeights, points: Any, t: Any) -> Float[Tensor, "*m n d"]:
    """x(t) = e^{tau M}x_0/|e^{tau M}x_0| with dt/dtau = |B^T x(tau)|, the solution of x' = P_x V B^T x/|B^T x| (Z1).

    t a number: (n, d); t a sequence of m numbers >= 0: (m, n, d). No eigenvectors are involved, so any M will do;
    B must be invertible. The error is that of rounding (about 1e-13).

    >>> import metastable as ms
    >>> w = ms.AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[1.0, 0.0], [0.0, 1.0]])
    >>> zero_temperature(w, [[0.6, 0.8]], 20.0)[0].round(decimals=6).tolist()
    [1.0, 0.0]
    """
    rho = _tokens(w, points)
    times = np.asarray(t, dtype=np.float64)
    x = orbit(w.M, w.B, rho, np.atleast_1d(times))
    return x[0] if times.ndim == 0 else x


def clock(w: AttentionWeights, points: Any, t: Any) -> Float[Tensor, "*m n"]:
    """The projective time tau_i(t) of every token, dtau/dt = 1/|B^T x_i|, tau_i(0) = 0; shapes as `zero_temperature`."""
    rho = _tokens(w, points)
    times = np.asarray(t, dtype=np.float64)
    tau = orbit_clock(w.M, w.B, rho, np.atleast_1d(times))
    return tau[0] if times.ndim == 0 else tau


def _tokens(w: AttentionWeights, points: Any) -> Tensor:
    x = as_measure(points).points
    if x.shape[1] != w.d:
        raise InvalidInput(f"points have dimension {x.shape[1]} but the weights have dimension {w.d}")
    return x
