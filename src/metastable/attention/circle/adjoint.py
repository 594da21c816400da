"""The transpose of the derivative of attention on the circle by Fourier series: O(n K), K modes, about 6 sqrt(|q|).

For keys y = e^{i theta} and queries q = r e^{i phi}, e^{<q, y> - r} = sum_k c_k(r) e^{ik (phi - theta)}, with
c_k(r) = e^{-r} I_k(r) > 0 that sum to one and fall faster than e^{-k^2/2r} does where k < r. Both sums of
`direct.adjoint`, in its letters, are series in one angle:

    by_query_i = E_i[y y^T] g_i - s_i E_i[y],   E_i[y^l] = (e^{r_i}/Z_i) sum_k c_k(r_i) e^{ik phi_i} mu_{l-k},
    by_key_j = m_j h'(theta_j) e_j,   h(theta) = sum_i (e^{r_i}/Z_i) e^{<q_i, y> - r_i} (<g_i, y> - s_i),

where mu_k = sum_j m_j e^{ik theta_j}, and e_j = (-sin, cos) theta_j: of by_key there is the part along the circle,
which is all that tokens on it can feel. Errors are relative to e^{r_i} in row i, hence e^{r_i}/Z_i times as large
beside Z_i: little where queries look at keys, too much where they look away from all of them, which `modes` says.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.attention.backwards import Backwards
from metastable.attention.circle.mode_sums import look_at_moments, slopes, sum_moments
from metastable.rowwise import inner
from metastable.threads import over_rows

ROUNDING = 2e-15
"""Rounding of a row relative to e^{r_i}, divided by 1 + r: turns by an angle are rounded some eps times a mode's
number, and by_query is a difference of moments that are r times as large. tests/attention/circle/test_adjoint.py
finds a fourth of it."""
MOST_MODES = 2000
"""Modes beyond which all pairs are taken: r of some 10^5, where rounding allows no more than two digits."""
PIECES = 8
"""Ranges of queries whose sums are kept apart until the end, so that the digits do not depend on the threads."""


def modes(
    queries: Float[Tensor, "n 2"], log_mass: Float[Tensor, "n"], log_partition: Float[Tensor, "n"], rtol: float
) -> int | None:
    """Modes for errors below rtol beside the partitions, None where rounding or `MOST_MODES` do not allow them."""
    length = inner(queries, queries).sqrt()
    lost = float((length - log_partition).max() + torch.logsumexp(log_mass, 0))
    return modes_of_extremes(float(length.max()), lost, rtol)


def modes_of_extremes(longest: float, lost: float, rtol: float) -> int | None:
    """`modes` from max r_i and max (r_i - log Z_i) + log sum_j m_j."""
    rounding = ROUNDING * (1 + longest)
    if not lost < math.log(rtol / rounding):
        return None
    # Rounded to quarters of an octave and to powers of two, so that a run asks for few of them.
    octaves = math.ceil(4 * math.log2(max(longest, 1.0)))
    return _modes_of(2.0 ** (octaves / 4), 2.0 ** math.floor(math.log2(rtol / 4) - lost / math.log(2.0)))


@cache
def _modes_of(longest: float, least: float) -> int | None:
    """K such that the modes above err by `least` beside e^{r}, r <= longest, also in the slope of a series."""
    from scipy.special import ive

    # c_k(r) grows with r where k^2 > r, and sum_{l >= k} l c_l(r) = r (c_{k-1} + c_k)/2.
    k = np.arange(1, MOST_MODES)
    tail = (1 + longest) * (ive(k - 1, longest) + ive(k, longest))
    enough = np.flatnonzero(tail < least)
    return int(k[enough[0]]) + 2 if len(enough) else None


def circle_adjoint_cost(n: int, count: int) -> float:
    """Rough nanoseconds of one core."""
    return 1e5 + n * (60.0 + 3.0 * count)


def circle_adjoint(given: Backwards, count: int) -> tuple[Float[Tensor, "n 2"], Float[Tensor, "n 2"]]:
    """(by_query, by_key along the circle) for keys of unit length, with that many modes."""
    q, y, g = (np.ascontiguousarray(part.numpy().T) for part in (given.queries, given.keys, given.cotangent))
    top = float(given.log_mass.max())
    mass, log_scale = torch.exp(given.log_mass - top).numpy(), (top - given.log_partition).numpy()
    found = circle_sums(q, y, mass, log_scale, g, np.ascontiguousarray(given.shift.numpy()), count)
    by_query, by_key = (torch.from_numpy(np.ascontiguousarray(part.T)) for part in found)
    return by_query, by_key


def circle_sums(
    q: np.ndarray, y: np.ndarray, mass: np.ndarray, log_scale: np.ndarray, g: np.ndarray, s: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """The same of tokens in columns, q, y and g being (2, n): log_scale is -log Z_i for these masses."""
    n = len(mass)
    edges = [n * piece // PIECES for piece in range(PIECES + 1)]
    cost = circle_adjoint_cost(n, count) / 3
    moments, sums = np.zeros((PIECES, 2, count + 3)), np.zeros((PIECES, 6, count + 1))
    by_query, by_key = np.empty((2, n)), np.empty((2, n))

    def gather(start: int, stop: int) -> None:
        for piece in range(start, stop):
            sum_moments(y, mass, edges[piece], edges[piece + 1], moments[piece])

    over_rows(gather, PIECES, cost=cost)
    table = _pairs_of_modes(moments.sum(0))

    def look(start: int, stop: int) -> None:
        for piece in range(start, stop):
            look_at_moments(q, log_scale, g, s, table, edges[piece], edges[piece + 1], sums[piece], by_query)

    over_rows(look, PIECES, cost=cost)
    series = _series(sums.sum(0))

    def answer(start: int, stop: int) -> None:
        slopes(y, mass, series, start, stop, by_key)

    over_rows(answer, n, cost=cost)
    return by_query, by_key


def _pairs_of_modes(moments: np.ndarray) -> np.ndarray:
    """(2, 4, K + 1): Re(a + b), Im(b - a), Im(a + b), Re(a - b) of a = mu_{l-k} and b = mu_{l+k}, l = 1 and 2."""
    mu = moments[0] + 1j * moments[1]
    count = len(mu) - 3
    k = np.arange(count + 1)
    table = np.empty((2, 4, count + 1))
    for row, l in enumerate((1, 2)):
        a, b = np.where(k <= l, mu[np.abs(l - k)], mu[np.abs(l - k)].conj()), mu[l + k]
        table[row] = (a + b).real, (b - a).imag, (a + b).imag, (a - b).real
        table[row, :, 0] *= 0.5
    return table


def _series(sums: np.ndarray) -> np.ndarray:
    """(2, K + 2): 2 i k h_k of h = sum_k h_k e^{ik theta}, from those of g_1, g_2 and s (`look_at_moments`)."""
    along, across, less = (np.append(sums[2 * c] - 1j * sums[2 * c + 1], [0.0, 0.0]) for c in range(3))
    k = np.arange(1, len(along) - 1)
    h = 0.5 * (along[k - 1] + along[k + 1]) - 0.5j * (across[k - 1] - across[k + 1]) - less[k]
    slope = 2j * k * h
    return np.stack((np.append(0.0, slope.real), np.append(0.0, slope.imag)))
