"""Two tokens under a common noise: the motion of g = <x, y>, when they synchronise, and what attention adds.

Without attention dx = s P_x o dW(x), Cov(dW(x), dW(y)) = kappa(<x, y>) I_d dt, makes g a diffusion of its own,
    dg = b(g) dt + sqrt(a(g)) dw,   b = s^2 [(d-2+g^2) kappa(g) - (d-1) kappa(1) g],
                                    a = 2 s^2 (1-g^2) (kappa(1) - g kappa(g)).
Near consensus e = 1 - g is a geometric Brownian motion, whose mean may grow while log e falls (Y1, Y2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from metastable.arguments import OneLine, integer, number
from metastable.flows.covariance import Covariance, as_covariance, overlap

MOST_DIMENSION = 10**9
"""Largest dimension, up to which d - 1 and d - 3 keep their digits."""
LARGEST_SCALE = 1e6
"""Largest amplitude of the noise, as of `CommonNoise`."""
LARGEST_ATTENTION = 1e9
"""Largest strength of attention."""
GRID = 4001
"""Angles between 0 and pi at which the coercivity is looked for; a parabola through the lowest refines it."""


@dataclass(frozen=True, repr=False)
class TwoPointMotion(OneLine):
    """g = <x, y> of two tokens: drift b(g), variance rate a(g), exponents near consensus.

    kappa: a `Covariance`, the name of an activation, coefficients c_k of sum c_k g^k or a function of g. scale: s.
    attention: v of softmax attention with V = v I and B = I at inverse temperature beta, of two equal tokens; v = 0
    for none. It adds 2 v (1 - g^2)/(1 + e^{beta (1 - g)}) to the drift, and -2 v to the exponents (Y3).

    >>> TwoPointMotion("relu", 5).lyapunov, TwoPointMotion("linear", 9).lyapunov
    (-1.0, -2.0)
    """

    kappa: Any
    d: int
    scale: float = 1.0
    attention: float = 0.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        read = {
            "kappa": as_covariance(self.kappa),
            "d": integer(self.d, "d", least=2, most=MOST_DIMENSION),
            "scale": number(self.scale, "scale", least=0.0, most=LARGEST_SCALE),
            "attention": number(self.attention, "attention", least=-LARGEST_ATTENTION, most=LARGEST_ATTENTION),
            "beta": number(self.beta, "beta", least=0.0),
        }
        for name, value in read.items():
            object.__setattr__(self, name, value)
        self.covariance.require_positive(self.d)

    @property
    def covariance(self) -> Covariance:
        """kappa."""
        found: Covariance = self.kappa
        return found

    def drift(self, g: Any) -> Float[np.ndarray, "*shape"]:
        """b(g), with what attention adds."""
        x = overlap(g)
        noise = (self.d - 2 + x**2) * self.covariance(x) - (self.d - 1) * self.covariance.one * x
        return np.asarray(self.scale**2 * noise + self._pull(x) * (1 - x))

    def variance(self, g: Any) -> Float[np.ndarray, "*shape"]:
        """a(g)."""
        x = overlap(g)
        return np.asarray(2 * self.scale**2 * (1 - x**2) * (self.covariance.one - x * self.covariance(x)))

    @property
    def lyapunov(self) -> float:
        """lim log(1 - g_t)/t near consensus: s^2 [(d-3) kappa'(1) - (d-1) kappa(1)] - 2 v; half for |x - y|."""
        kappa = self.covariance
        noise = (self.d - 3) * kappa.slope - (self.d - 1) * kappa.one
        return self.scale**2 * noise - 2 * self.attention

    @property
    def growth(self) -> float:
        """Rate of E[1 - g_t] near consensus: s^2 [(d-1) kappa'(1) - (d-3) kappa(1)] - 2 v >= `lyapunov`."""
        kappa = self.covariance
        noise = (self.d - 1) * kappa.slope - (self.d - 3) * kappa.one
        return self.scale**2 * noise - 2 * self.attention

    @property
    def spread(self) -> float:
        """Variance rate of log(1 - g) near consensus, 4 s^2 (kappa(1) + kappa'(1)): twice `growth` - `lyapunov`."""
        return 4 * self.scale**2 * (self.covariance.one + self.covariance.slope)

    @property
    def synchronises(self) -> bool:
        """Whether two close tokens meet: the exponent is below zero (Y1)."""
        return self.lyapunov < 0

    @property
    def coercivity(self) -> float:
        """The largest c with b(g) >= c (1 - g) for all g, so that E[1 - g_t] <= e^{-c t} (1 - g_0) (Y2)."""
        angles = np.linspace(0.0, math.pi, GRID)[1:]
        quotient = self.drift(np.cos(angles)) / (2 * np.sin(angles / 2) ** 2)
        j = int(np.argmin(quotient))
        lowest = float(quotient[j])
        if 0 < j < len(angles) - 1:
            before, here, after = (float(quotient[i]) for i in (j - 1, j, j + 1))
            bend = before - 2 * here + after
            lowest -= (after - before) ** 2 / (8 * bend) if bend > 0 else 0.0
        return min(lowest, -self.growth)

    def _pull(self, g: Any) -> Any:
        """What attention adds to b(g)/(1 - g)."""
        weight = 1 / (1 + np.exp(np.minimum(self.beta * (1 - g), 700.0)))
        return 2 * self.attention * (1 + g) * weight


def largest_dimension(kappa: Any) -> float:
    """The largest d in which noise alone synchronises; infinite when it does in all (Y1).

    kappa'(1)/kappa(1) = r < (d-1)/(d-3), hence d < (3 r - 1)/(r - 1) if r > 1.

    >>> largest_dimension("tanh"), largest_dimension("relu")
    (14.0, inf)
    """
    covariance = as_covariance(kappa)
    ratio = covariance.slope / covariance.one
    return math.inf if ratio <= 1 else float(math.ceil((3 * ratio - 1) / (ratio - 1)) - 1)
