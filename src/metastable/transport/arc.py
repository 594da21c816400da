"""Transport on a short arc of the circle: the line in disguise, with all digits however small the arc is.

Directions on an arc shorter than pi are at the geodesic distance |t - s| of their angles, and the monotone plan is
optimal for every convex cost of t - s: |t - s|^p, and the chord (2 sin(|t - s|/2))^p up to its inflection
t_0 = 2 atan sqrt(p - 1). No mass travels around, so nothing is rounded to the length of the circle.
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float

from metastable.transport.line import monotone_coupling

_FEW = 64
"""Rows that are looked at first."""


def arc_cost(
    x: Float[np.ndarray, "n 2"],
    a: Float[np.ndarray, "n"],
    y: Float[np.ndarray, "m 2"],
    b: Float[np.ndarray, "m"],
    metric: str,
    p: float,
) -> float | None:
    """W_p^p between directions (rows of any length) that lie on one short arc, else None.

    >>> one = np.ones(1)
    >>> arc_cost(np.array([[1.0, 0.0]]), one, np.array([[1.0, 1e-12]]), one, "geodesic", 2)
    1e-24
    >>> arc_cost(np.array([[1.0, 0.0]]), one, np.array([[-1.0, 0.0]]), one, "geodesic", 2) is None
    True
    """
    longest = math.pi if metric == "geodesic" else inflection(p)
    for look in (_FEW, max(len(x), len(y))):  # some rows that are far apart spare a look at all
        some_x, some_y = x[:: -(-len(x) // look)], y[:: -(-len(y) // look)]
        t, s = _angles_from(x[0], some_x), _angles_from(x[0], some_y)
        if not max(t.max(), s.max()) - min(t.min(), s.min()) < longest:
            return None
    i, j, mass = monotone_coupling(a[by_t := np.argsort(t)], b[by_s := np.argsort(s)])
    apart = np.abs(t[by_t[i]] - s[by_s[j]])
    return float(mass @ (apart if metric == "geodesic" else 2 * np.sin(apart / 2)) ** p)


def inflection(p: float) -> float:
    """t_0 = 2 atan sqrt(p - 1), where (2 sin(t/2))^p turns from convex to concave."""
    return 2 * math.atan(math.sqrt(p - 1))


def _angles_from(middle: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Signed angles of the rows as seen from `middle`, in (-pi, pi]."""
    across = middle[0] * points[:, 1] - middle[1] * points[:, 0]
    return np.arctan2(across, points @ middle)
