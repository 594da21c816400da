"""Tokens on spheres in the order of the curve, and the transpose of attention over all of them."""

from __future__ import annotations

import numpy as np

from metastable.attention.nearby.order import curve_order


def sorted_tokens(n: int, d: int, seed: int, spread: float | None = None) -> np.ndarray:
    """Keys (d + 1, n) with masses from 1/2 to 1, in the order of the curve; around four points with `spread`."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    if spread is not None:
        x = rng.normal(size=(4, d))[rng.integers(4, size=n)] + spread * x
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x = x[curve_order(x)]
    return np.concatenate([x.T, rng.uniform(0.5, 1.0, (1, n))])


def along(keys: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    """The parts of vectors (3, n) along the sphere at keys (3, n)."""
    return vectors - (vectors * keys).sum(axis=0) * keys


class Transpose:
    """What the transpose is given, all in columns, and what it is: sums over all pairs, in float64."""

    def __init__(self, keys: np.ndarray, z: np.ndarray, seed: int, shifted: bool = True) -> None:
        rng = np.random.default_rng(seed)
        self.keys, self.z = keys, z
        scores = z.T @ keys[:3]
        top = scores.max(axis=1)
        weights = np.exp(scores - top[:, None]) * keys[3]
        self.log_partition = np.log(weights.sum(axis=1)) + top
        weights /= weights.sum(axis=1)[:, None]
        self.mean = np.ascontiguousarray((weights @ keys[:3].T).T)
        self.cotangent = rng.normal(size=z.shape)
        self.shift = (self.cotangent * self.mean).sum(axis=0) if shifted else rng.normal(size=z.shape[1])
        change = weights * (self.cotangent.T @ keys[:3] - self.shift[:, None])
        self.by_query = keys[:3] @ change.T
        self.by_key = self.cotangent @ weights + z @ change

    @property
    def given(self) -> tuple[np.ndarray, ...]:
        """(keys, z, log Z, g, s)."""
        return self.keys, self.z, self.log_partition, self.cotangent, self.shift

    def errors(self, by_query: np.ndarray, by_key: np.ndarray) -> tuple[float, float]:
        """Largest errors in units of (|g| + |s|) and of m/M sum (|g| + |s|) (1 + max|q|), along the sphere."""
        size = np.linalg.norm(self.cotangent, axis=0) + np.abs(self.shift)
        scale = (1.0 + np.linalg.norm(self.z, axis=0).max()) * size.sum() * self.keys[3] / self.keys[3].sum()
        here = self.keys[3] > 0.0
        off = np.linalg.norm(along(self.keys[:3], by_key - self.by_key), axis=0)
        assert (off[~here] == 0.0).all()
        return (
            float((np.linalg.norm(by_query - self.by_query, axis=0) / size).max()),
            float((off[here] / scale[here]).max()),
        )
