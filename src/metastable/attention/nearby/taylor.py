"""A node of keys at a node of queries by one Taylor polynomial, for nodes that are small together.

With a = z - z_c of the queries z = beta q and b = k - k_c of the keys,
    e^{<z, k>} = e^{<z, k_c>} e^{<z_c, b>} e^{<a, b>},    e^{<a, b>} = sum_alpha a^alpha b^alpha / alpha!,
cut off above degree D - 1, errs by at most e^tau tau^D / D!, tau = max|a| max|b|: relative to what the keys of the
node contribute to the partition of a query, by e^{2 tau} tau^D / D!. The keys enter through their moments
sum_j m_j e^{<z_c, b_j>} b_j^alpha up to degree D, which give the sums of keys as well: e^{<a, b>} b is a gradient.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from metastable.attention.exp2 import LOG2_E, REDUCTION, exp2, wide
from metastable.attention.lasting import lasting

MOST_DEGREE = 18
"""Largest D on offer: 1330 moments in three dimensions, as many as tau = 2 takes at a tolerance of 1e-10."""
_BLOCK = 64
"""Tokens whose monomials are tabulated together."""


class Monomials(NamedTuple):
    """All alpha of degree up to MOST_DEGREE, by degree."""

    parent: np.ndarray
    """b^alpha = b^parent b_axis."""
    axis: np.ndarray
    ends: np.ndarray
    """[D]: how many there are up to degree D."""
    inverse: np.ndarray
    """1/alpha!."""
    above: np.ndarray
    """(..., d): the index of alpha + e_c, zero where that is of too large a degree."""


@cache
def monomials(d: int) -> Monomials:
    """The table for d variables."""
    found: list[tuple[int, ...]] = [(0,) * d]
    parent, axis, ends = [0], [0], [1]
    place = {found[0]: 0}
    for degree in range(1, MOST_DEGREE + 1):
        before = found[0 if degree == 1 else ends[-2] :]
        for alpha, c in itertools.product(before, range(d)):
            if all(alpha[after] == 0 for after in range(c + 1, d)):
                grown = tuple(alpha[e] + (e == c) for e in range(d))
                place[grown] = len(found)
                found.append(grown)
                parent.append(place[alpha])
                axis.append(c)
        ends.append(len(found))
    inverse = [1.0 / math.prod(math.factorial(power) for power in alpha) for alpha in found]
    above = [[place.get(tuple(alpha[e] + (e == c) for e in range(d)), 0) for c in range(d)] for alpha in found]
    return Monomials(np.array(parent), np.array(axis), np.array(ends), np.array(inverse), np.array(above))


@njit(cache=True, nogil=True, error_model="numpy")
def least_degree(tau: float, allowed: float) -> int:
    """The least D with 2 e^{2 tau} tau^D / D! at most `allowed`; zero where none is on offer."""
    left = 2.0 * math.exp(2.0 * tau)
    for degree in range(1, MOST_DEGREE + 1):
        left *= tau / degree
        if left <= allowed:
            return degree
    return 0


@njit(cache=True, nogil=True)
def pays(n_q: int, n_k: int, moments: int, terms: int) -> bool:
    """Whether a polynomial takes less time than the pairs, in nanoseconds as measured."""
    return 500.0 + n_k * (4.0 + 0.3 * moments) + n_q * (6.0 + 0.5 * terms) < 0.75 * n_q * n_k


@cache
def taylor_kernel(d: int) -> Callable[..., None]:
    """Compiled add(...) for d coordinates."""

    @njit(cache=True, nogil=True, fastmath=REDUCTION, error_model="numpy")
    def add(
        keys: Any, first: int, last: int, queries: Any, start: int, stop: int, k_c: Any, z_c: Any, degree: int,
        table: Any, floor: Any, sums: Any,
    ) -> None:  # fmt: skip
        """sums[:, i] += sum_j m_j e^{<z_i, k_j> - floor_i} (k_j, 1), keys (d + 1, n) and queries (d, n)."""
        wide()
        parent, axis, above, inverse = table.parent, table.axis, table.above, table.inverse
        terms, inner = table.ends[degree], table.ends[degree - 1]
        tabulated, lanes = np.empty((terms, _BLOCK)), np.zeros((terms, 8))
        u, w = np.zeros((d, _BLOCK)), np.zeros(_BLOCK)
        for begin in range(first, last, _BLOCK):
            length = min(_BLOCK, last - begin)
            for a in range(length):
                t = 0.0
                for c in range(d):
                    u[c, a] = keys[c, begin + a] - k_c[c]
                    t += z_c[c] * u[c, a]
                t *= LOG2_E
                t = t if t > -1000.0 else -1000.0
                w[a] = exp2(t if t < 1000.0 else 1000.0) * keys[d, begin + a]
            for a in range(length, _BLOCK):
                w[a] = 0.0
            for a in range(_BLOCK):
                tabulated[0, a] = w[a]
            for term in range(terms):
                if term > 0:
                    before, c = parent[term], axis[term]
                    for a in range(_BLOCK):
                        tabulated[term, a] = tabulated[before, a] * u[c, a]
                for a in range(8):
                    low = tabulated[term, a] + tabulated[term, 8 + a]
                    middle = tabulated[term, 16 + a] + tabulated[term, 24 + a]
                    high = tabulated[term, 32 + a] + tabulated[term, 40 + a]
                    lanes[term, a] += low + middle + high + tabulated[term, 48 + a] + tabulated[term, 56 + a]
        moments, coefficients = np.empty(terms), np.empty((d + 1, inner))
        for term in range(terms):
            moments[term] = lanes[term].sum()
        for term in range(inner):
            coefficients[d, term] = moments[term] * inverse[term]
            for c in range(d):
                coefficients[c, term] = moments[above[term, c]] * inverse[term]
        found = np.empty((d + 1, _BLOCK))
        for begin in range(start, stop, _BLOCK):
            length = min(_BLOCK, stop - begin)
            for a in range(length):
                t = -floor[begin + a]
                for c in range(d):
                    u[c, a] = queries[c, begin + a] - z_c[c]
                    t += queries[c, begin + a] * k_c[c]
                t *= LOG2_E
                t = t if t > -1000.0 else -1000.0
                w[a] = exp2(t if t < 1000.0 else 1000.0)
            for e in range(d + 1):
                for a in range(_BLOCK):
                    found[e, a] = coefficients[e, 0]
            for a in range(_BLOCK):
                tabulated[0, a] = 1.0
            for term in range(1, inner):
                before, c = parent[term], axis[term]
                for a in range(_BLOCK):
                    tabulated[term, a] = tabulated[before, a] * u[c, a]
                for e in range(d + 1):
                    factor = coefficients[e, term]
                    for a in range(_BLOCK):
                        found[e, a] += factor * tabulated[term, a]
            for a in range(length):
                sums[d, begin + a] += w[a] * found[d, a]
            for c in range(d):
                for a in range(length):
                    sums[c, begin + a] += w[a] * (found[c, a] + k_c[c] * found[d, a])

    return lasting(add, f"taylor {d}")
