"""Coordinates for queries on an ellipsoid in which attention is as smooth as for queries of one length.

Queries z = A y, y on S^2, lie on {|P^-1 z| = 1}, P = (A A^T)^(1/2) with eigenvalues a <= ... <= b. As a
function of y, e^{<z, k> - |z|} changes fast where |A y| is small, for z turns by b/a times the angle that y
turns by; as a function of u = z/|z| it changes fast where |z| falls off from its largest value, within a/b.
Between them lie the charts
    v = P^-t z/|P^-t z| on S^2,   z(v) = P^t v/|P^(t-1) v|,
t = 1 for y up to a rotation, t = 0 for u. For t = 1/2 the scale is 1/sqrt(b) everywhere, as for queries of
length b, unless b/a is large compared with b.

With x + is in place of an angle x of v, v = v' + iv'', the modulus of e^{<z, k> - h}, h^2 = |z|^2 + c^2, is at
most
    e^{r(s)},   r = largest |Re z| - Re h,
and its Fourier coefficient l at most e^{r(s) - ls} for every s. z and h are quotients of square roots of the
forms |P^t v|^2 + c^2 |P^(t-1) v|^2 and |P^(t-1) v|^2, analytic as long as neither vanishes, which tanh s <
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

    def chart(self, power: float, points: np.ndarray) -> np.ndarray:
        """(n, 3): vectors along v = P^-t z/|P^-t z| of points z (n, 3)."""
        return points @ (self.frame.T * self.axes**-power)

    def at(self, power: float, v: np.ndarray) -> np.ndarray:
        """(n, 3): z(v) of unit vectors v (n, 3)."""
        lengths = np.sqrt(v**2 @ self.axes ** (2.0 * power - 2.0))
        return (v * self.axes**power / lengths[:, None]) @ self.frame

    def lengths(self, power: float, v: np.ndarray) -> np.ndarray:
        """(n,): |z(v)|."""
        return np.sqrt(v**2 @ self.axes ** (2.0 * power) / (v**2 @ self.axes ** (2.0 * power - 2.0)))


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


def smoothness(surface: Ellipsoid, power: float, soft: float, high: float | None = None) -> Smoothness:
    """Bounds along great circles through the poles and all circles of latitude, or where sin(theta) = `high`."""
    low_form = surface.axes ** (2.0 * power - 2.0)
    high_form = surface.axes ** (2.0 * power)
    top_form = high_form + soft**2 * low_form
    ratio = min(float(form.min() / form.max()) for form in (low_form, top_form))
    s = np.linspace(0.0, 1.0, _STEPS + 2)[1:-1] * min(math.atanh(min(math.sqrt(ratio), 1.0 - 1e-6)), _WIDEST)
    stretched, shifted = np.cosh(s) ** 2, np.sinh(s) ** 2
    rise = np.zeros(_STEPS)
    for across in range(3):
        for along in range(3):
            if along == across or (high is not None and 2 in (along, across)):
                continue
            # v' along one axis (and the pole's, on a circle of latitude), v'' along another one.
            real, imaginary = np.zeros((3, 1)), np.zeros((3, 1))
            real[along], imaginary[across] = 1.0, 1.0
            squares, others = real * stretched, imaginary * shifted
            if high is not None:
                squares, others = squares * high**2, others * high**2
                squares[2] += 1.0 - high**2
            root = np.sqrt(low_form @ (squares - others))
            rise = np.maximum(rise, (np.sqrt(high_form @ squares) - np.sqrt(top_form @ (squares - others))) / root)
    return Smoothness(s, rise)
