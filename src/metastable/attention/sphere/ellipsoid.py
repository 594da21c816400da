"""Coordinates for queries on an ellipsoid in which attention is as smooth as for queries of one length.

Queries z = A y, y on S^2, lie on {|P^-1 z| = 1}, P = (A A^T)^(1/2) with eigenvalues a <= ... <= b. As a
function of y, e^{<z, k> - |z|} changes fast where |A y| is small, for z turns by b/a times the angle that y
turns by; as a function of u = z/|z| it changes fast where |z| falls off from its largest value, within a/b.
Between them lie the charts
    v = D^-1 z/|D^-1 z| on S^2,   z(v) = D v/|P^-1 D v|,
D = P for y up to a rotation, D = 1 for u. For D = P^(1/2) the scale is 1/sqrt(b) everywhere, as for queries of
length b, unless b/a is large compared with b. The poles of v lie on one of the axes of P, of which D is a function
but for the other two, which it stretches alike: circles of latitude are then circles of latitude of u.

With x + is in place of an angle x of v, v = v' + iv'', the modulus of e^{<z, k> - h}, h^2 = |z|^2 + c^2, is at
most
    e^{r(s)},   r = largest |Re z| - Re h,
and its Fourier coefficient l at most e^{r(s) - ls} for every s. z and h are quotients of square roots of the
forms |D v|^2 + c^2 |P^-1 D v|^2 and |P^-1 D v|^2, analytic as long as neither vanishes, which tanh s <
sqrt(least/largest eigenvalue) of both makes sure of. In the frame of the axes of P, r is largest where v' and
v'' lie in the planes of the axes, and there everything is real (found numerically;
`tests/attention/sphere/test_ellipsoid.py` repeats it).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

_STEPS = 96
"""Values of s at which r(s) - ls is looked at: each gives a bound, the least one is used."""
_WIDEST = 3.0
"""Largest s: for queries of nearly one length r(s) has no pole."""


class Ellipsoid(NamedTuple):
    """{z: |P^-1 z| = 1}."""

    axes: np.ndarray
    """(3,): the eigenvalues of P; the poles of v lie on the last."""
    frame: np.ndarray
    """(3, 3): the eigenvectors as rows."""

    @classmethod
    def of(cls, axes: np.ndarray, frame: np.ndarray) -> Ellipsoid:
        """From the lengths of the axes, the longest first, and the axes: the two that differ least are no poles."""
        order = [0, 1, 2] if axes[0] * axes[2] <= axes[1] ** 2 else [1, 2, 0]
        return cls(axes[order], frame[order])

    def stretch(self, power: float) -> np.ndarray:
        """(3,): D = P^power, alike on the first two axes."""
        across = math.sqrt(self.axes[0] * self.axes[1])
        return np.array([across, across, self.axes[2]]) ** power

    def chart(self, stretch: np.ndarray) -> np.ndarray:
        """(3, 3): points z (n, 3) times it lie along v."""
        return self.frame.T / stretch

    def lengths(self, stretch: np.ndarray, v: np.ndarray) -> np.ndarray:
        """(...): |z(v)| of unit vectors v (..., 3)."""
        squares = v**2
        return np.sqrt((squares @ stretch**2) / (squares @ (stretch / self.axes) ** 2))


class Smoothness(NamedTuple):
    """Bounds e^{rise - ls} of the Fourier coefficients along circles of v, one for every s."""

    s: np.ndarray
    rise: np.ndarray

    def coefficients(self, modes: int) -> np.ndarray:
        """(modes,): the least bound of the coefficient l, at most 1."""
        exponent = self.rise[None] - np.arange(modes)[:, None] * self.s[None]
        return np.exp(np.minimum(exponent.min(axis=1), 0.0))

    def beyond(self, rest: float) -> float:
        """About the l above which coefficients sum up to `rest`."""
        return float(((self.rise - np.log(rest * np.minimum(self.s, 1.0))) / self.s).min())


def smoothness(surface: Ellipsoid, stretch: np.ndarray, soft: float) -> Smoothness:
    """Bounds along great circles through the poles and all circles of latitude."""
    low_form, high_form = (stretch / surface.axes) ** 2, stretch**2
    top_form = high_form + soft**2 * low_form
    ratio = min(float(form.min() / form.max()) for form in (low_form, top_form))
    s = np.linspace(0.0, 1.0, _STEPS + 2)[1:-1] * min(math.atanh(min(math.sqrt(ratio), 1.0 - 1e-6)), _WIDEST)
    stretched, shifted = np.cosh(s) ** 2, np.sinh(s) ** 2
    rise = np.zeros(_STEPS)
    for across in range(3):
        for along in range(3):
            if along != across:  # v' along one axis, v'' along another one
                root = np.sqrt(low_form[along] * stretched - low_form[across] * shifted)
                top = np.sqrt(top_form[along] * stretched - top_form[across] * shifted)
                rise = np.maximum(rise, (np.sqrt(high_form[along] * stretched) - top) / root)
    return Smoothness(s, rise)
