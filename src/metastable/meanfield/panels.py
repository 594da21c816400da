"""The flow map of the circle on panels: a polynomial of degree 15 on each dyadic part of the cells of rho_0.

A panel is a part [left, left + 2^-level] of a root cell, both dyadic and hence exact; positions are kept at its 16
Gauss nodes, so that sums over nodes are integrals against rho_t, and a matrix halves a panel or joins two.
Labels are never subtracted: a panel may shrink to a mass far below the rounding of an angle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from metastable.meanfield.circle import CircleLaw
from metastable.meanfield.piecewise import TWO_PI, Array

NODES = 16
"""Gauss nodes of a panel."""
MOST_HALVINGS = 50
"""Most halvings of a root cell: `left` stays exact."""

XI, WEIGHT = legendre.leggauss(NODES)
_TO_SERIES: Array = (legendre.legvander(XI, NODES - 1) * (np.arange(NODES) + 0.5)).T * WEIGHT


def _matrix_to(xi: Array) -> Array:
    """Values at the Gauss nodes to values at xi in [-1, 1]."""
    return np.asarray(legendre.legvander(xi, NODES - 1) @ _TO_SERIES)


_HALVES: Array = np.stack([_matrix_to((XI - 1) / 2), _matrix_to((XI + 1) / 2)])
_JOIN: Array = np.zeros((NODES, 2 * NODES))
_JOIN[: NODES // 2, :NODES] = _matrix_to(2 * XI[: NODES // 2] + 1)
_JOIN[NODES // 2 :, NODES:] = _matrix_to(2 * XI[NODES // 2 :] - 1)


@dataclass(frozen=True, eq=False)
class Panels:
    """Leaves of the dyadic trees over the root cells of a law, in the order of the circle."""

    root: NDArray[np.int64]
    left: Array
    level: NDArray[np.int64]

    @classmethod
    def of(cls, law: CircleLaw) -> Panels:
        """The root cells themselves: rho_0 is a polynomial on each."""
        count = len(law.density.width)
        return cls(np.arange(count), np.zeros(count), np.zeros(count, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.root)

    def start(self, law: CircleLaw) -> Array:
        """Angles (K, 16) of the nodes at time 0."""
        size = law.density.width[self.root]
        inside = self.left[:, None] + np.ldexp(0.5, -self.level)[:, None] * (XI + 1)
        return law.density.edges[self.root][:, None] + size[:, None] * inside

    def mass(self, law: CircleLaw) -> Array:
        """Masses (K, 16) of the nodes: sum_j m_j g(theta_0(j)) is the integral of g against rho_0."""
        size = np.ldexp(law.density.width[self.root], -self.level)
        values = np.clip(law.density(self.start(law).ravel()).reshape(-1, NODES), 0.0, None)
        mass = values * WEIGHT * size[:, None] / (2 * TWO_PI)
        return mass / mass.sum()

    def halved(self, chosen: NDArray[np.bool_]) -> Panels:
        """With the chosen panels cut into two."""
        parts = np.where(chosen, 2, 1)
        of = np.repeat(np.arange(len(self)), parts)
        second = np.concatenate([[False], of[1:] == of[:-1]])
        level = self.level[of] + chosen[of]
        return Panels(self.root[of], self.left[of] + np.where(second, np.ldexp(1.0, -level), 0.0), level)

    def united(self, other: Panels) -> Panels:
        """The coarsest panels that are finer than both."""
        root, left = np.append(self.root, other.root), np.append(self.left, other.left)
        order = np.lexsort((left, root))
        root, left = root[order], left[order]
        new = np.append(True, (np.diff(root) != 0) | (np.diff(left) != 0))
        root, left = root[new], left[new]
        end = np.append(np.where(np.diff(root) == 0, left[1:], 1.0), 1.0)
        return Panels(root, left, np.rint(-np.log2(end - left)).astype(np.int64))

    def read(self, values: Array, finer: Panels) -> Array:
        """The polynomials with these values (K, 16), at the nodes of finer panels."""
        mine = np.append(np.ones(len(self), dtype=bool), np.zeros(len(finer), dtype=bool))
        order = np.lexsort((~mine, np.append(self.left, finer.left), np.append(self.root, finer.root)))
        host = (np.cumsum(mine[order]) - 1)[~mine[order]]
        shift = np.ldexp(finer.left - self.left[host], self.level[host])
        xi = 2 * shift[:, None] + np.ldexp(1.0, self.level[host] - finer.level)[:, None] * (XI + 1) - 1
        series = _along(_TO_SERIES, values[host])
        same = finer.level == self.level[host]
        if values.ndim == 2:
            return np.where(same[:, None], values[host], _clenshaw(series, xi))
        read = np.stack([_clenshaw(series[..., i], xi) for i in range(values.shape[2])], axis=-1)
        return np.where(same[:, None, None], values[host], read)


def halved_values(values: Array, chosen: NDArray[np.bool_]) -> Array:
    """Values (K, 16) or (K, 16, 3) on `Panels.halved(chosen)`."""
    parts = np.where(chosen, 2, 1)
    of = np.repeat(np.arange(len(values)), parts)
    out = values[of]
    first = np.flatnonzero(chosen) + np.arange(int(chosen.sum()))
    for side in (0, 1):
        out[first + side] = _along(_HALVES[side], values[chosen])
    return out


def siblings(panels: Panels) -> NDArray[np.int64]:
    """Indices k for which the panels k and k + 1 are the two halves of one."""
    k = np.arange(len(panels) - 1)
    pair = (panels.root[:-1] == panels.root[1:]) & (panels.level[:-1] == panels.level[1:]) & (panels.level[:-1] > 0)
    even = np.ldexp(panels.left[:-1], panels.level[:-1] - 1) % 1.0 == 0
    return k[pair & even]


def joined(values: Array, first: NDArray[np.int64]) -> tuple[Array, Array]:
    """Values (J, 16) on the unions of the panels first, first + 1, and the largest error of reading them back."""
    pairs = np.concatenate([values[first], values[first + 1]], axis=1)
    whole = _along(_JOIN, pairs)
    back = np.concatenate([_along(half, whole) for half in _HALVES], axis=1)
    return whole, _largest(back - pairs)


def without_halves(panels: Panels, first: NDArray[np.int64]) -> Panels:
    """With the panels first, first + 1 replaced by their unions."""
    level = panels.level.copy()
    level[first] -= 1
    keep = np.ones(len(panels), dtype=bool)
    keep[first + 1] = False
    return Panels(panels.root[keep], panels.left[keep], level[keep])


def tails(values: Array) -> Array:
    """Size (K,) of the last three Legendre coefficients: the error of a resolved panel is below it."""
    return _largest(_along(_TO_SERIES[-3:], values))


def read_at(values: Array, xi: Array) -> Array:
    """The polynomials with these values (K, 16), at points (K, ...) of [-1, 1] of their panels."""
    return _clenshaw(_along(_TO_SERIES, values), xi)


def _along(matrix: Array, values: Array) -> Array:
    """The matrix times the nodes of every panel, for values (K, 16) or (K, 16, 3)."""
    return np.asarray(np.moveaxis(np.tensordot(values, matrix, axes=(1, 1)), -1, 1))


def _largest(values: Array) -> Array:
    return np.asarray(np.abs(values).reshape(len(values), -1).max(axis=1))


def _clenshaw(series: Array, xi: Array) -> Array:
    """sum_k c_k P_k(xi), one row of coefficients per row of points."""
    older = np.zeros_like(xi)
    newer = np.zeros_like(xi)
    for k in range(NODES - 1, 0, -1):
        older, newer = newer, series[:, k, None] + (2 * k + 1) / (k + 1) * xi * newer - (k + 1) / (k + 2) * older
    return series[:, 0, None] + xi * newer - older / 2
