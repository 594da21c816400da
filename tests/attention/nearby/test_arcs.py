"""Arcs of the circle with proxies and nodes, against sums over all keys."""

from __future__ import annotations

import numpy as np
import pytest

from metastable.attention.nearby.arcs import NODES, arcs_for, attend_arcs, gather_arcs


def tokens(kind: str, n: int, seed: int) -> np.ndarray:
    """Keys (3, n) in the order of their angles, masses over two decades."""
    rng = np.random.default_rng(seed)
    angle = rng.uniform(-np.pi, np.pi, n)
    if kind == "clusters":
        angle = rng.uniform(-np.pi, np.pi, 5)[rng.integers(5, size=n)] + 0.05 * rng.normal(size=n)
    elif kind == "points":
        angle = np.array([0.3, 2.9])[rng.integers(2, size=n)] + 1e-7 * rng.normal(size=n)
    angle = np.sort((angle + np.pi) % (2 * np.pi) - np.pi)
    return np.stack([np.cos(angle), np.sin(angle), 10.0 ** rng.uniform(-2, 0, n)])


def test_proxies_have_the_moments_of_the_keys():
    """Sums of polynomials in the sine, up to the degree of the proxies."""
    keys = tokens("uniform", 3000, seed=1)
    arcs = gather_arcs(keys, 3000, 0.2)
    for run in range(len(arcs.sine)):
        held = slice(arcs.first[run], arcs.first[run + 1])
        near = arcs.proxies[:, NODES * run : NODES * (run + 1)]
        u, v = arcs.centre[:, run]
        for power in (0, 1, 5, NODES - 1):
            exact = (keys[2, held] * (arcs.at[held]) ** power).sum()
            found = (near[2] * ((u * near[1] - v * near[0]) / arcs.sine[run]) ** power).sum()
            assert found == pytest.approx(exact, abs=1e-12 * keys[2, held].sum())
        assert np.abs(arcs.at[held]).max() <= 1.0


@pytest.mark.parametrize("kind", ["uniform", "clusters", "points"])
@pytest.mark.parametrize("beta", [0.01, 3.0, 60.0, 700.0])
@pytest.mark.parametrize("rtol", [1e-4, 1e-9, 3e-11])
def test_rows_are_the_sums_over_all_keys(kind, beta, rtol):
    """Matrices far from rotations, so that queries look away from all keys; few pairs where arcs are full."""
    n = 1500
    keys, rng = tokens(kind, n, seed=2), np.random.default_rng(3)
    for A in (np.eye(2), rng.normal(size=(2, 2)), np.array([[0.0, -1.0], [1.0, 0.0]])):
        A = np.ascontiguousarray(beta * A)
        z = np.ascontiguousarray(A @ keys[:2])
        sharpness = float(np.linalg.norm(z, axis=0).max())
        arcs = arcs_for(keys, n, sharpness, rtol)
        if arcs is None:
            arcs = gather_arcs(keys, n, 0.05)
        mean, log_z = np.empty((n, 2)), np.empty(n)
        pairs = attend_arcs(0, len(arcs.sine), keys, arcs, z, A, rtol, mean, log_z)
        scores = z.T @ keys[:2]
        top = scores.max(axis=1)
        weights = np.exp(scores - top[:, None]) * keys[2]
        total = weights.sum(axis=1)
        rounding = 1e-14 * (1.0 + sharpness)
        assert np.abs(log_z - top - np.log(total)).max() <= 0.45 * rtol + rounding
        assert np.abs(mean - (weights @ keys[:2].T) / total[:, None]).max() <= 0.9 * rtol + rounding
        assert pairs < 0.6 * n * n


def test_no_arcs_where_they_would_be_empty_or_too_steep():
    keys = tokens("uniform", 500, seed=4)
    assert arcs_for(keys, 500, 30.0, 1e-9) is not None
    assert arcs_for(keys, 500, 5000.0, 1e-9) is None
    assert arcs_for(tokens("points", 500, seed=4), 500, 1e7, 1e-9) is None
