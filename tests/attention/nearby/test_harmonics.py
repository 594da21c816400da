"""Sums of spherical harmonics, against sums over all keys."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import eval_legendre

from metastable.attention.nearby.harmonics import (
    MOST_DEGREE,
    attend_harmonics,
    least_degree_of_harmonics,
    moments,
)


def tokens(kind: str, n: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    if kind == "clusters":
        x = rng.normal(size=(3, 3))[rng.integers(3, size=n)] + 0.05 * x
    elif kind == "poles":  # where no azimuth is defined
        x = np.sign(x[:, :1]) * [0.0, 0.0, 1.0] + 0.0
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return np.concatenate([x.T, 10.0 ** rng.uniform(-2, 0, (1, n))])


def test_moments_are_those_of_legendre_polynomials():
    """The addition theorem: sum_m R_lm(z) R_lm(k) = P_l(<z, k>) on the sphere."""
    pair = tokens("uniform", 2, seed=0)
    pair[3] = 1.0
    gathered = [np.zeros((13, 13, 8)) for _ in range(2)]
    for token, out in enumerate(gathered):
        moments(np.ascontiguousarray(pair[:, token : token + 1]), 0, 1, 12, out)
    together = gathered[0][:, :, [3, 7]] * gathered[1][:, :, [3, 7]]
    inner = float(pair[:3, 0] @ pair[:3, 1])
    np.testing.assert_allclose(together.sum(axis=(0, 2)), eval_legendre(np.arange(13), inner), atol=1e-14)


@pytest.mark.parametrize("kind", ["uniform", "clusters", "poles"])
@pytest.mark.parametrize("beta", [0.0, 1e-9, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("rtol", [1e-3, 1e-8, 1e-10])
def test_rows_are_the_sums_over_all_keys(kind, beta, rtol):
    n, rng = 600, np.random.default_rng(4)
    keys = tokens(kind, n, seed=1)
    z = np.ascontiguousarray(beta * (np.eye(3) + 0.3 * rng.normal(size=(3, 3))) @ keys[:3])
    z[:, 0] = 0.0
    degree = least_degree_of_harmonics(keys, z, rtol)
    if degree < 0:
        assert beta >= 3.0
        return
    gathered = np.zeros((degree + 1, degree + 1, 8))
    moments(keys, 0, n, degree, gathered)
    mean, log_z = np.empty((n, 3)), np.empty(n)
    attend_harmonics(0, n, z, gathered, degree, mean, log_z)
    weights = np.exp(z.T @ keys[:3]) * keys[3]
    total = weights.sum(axis=1)
    assert np.abs(log_z - np.log(total)).max() <= 0.45 * rtol + 1e-13
    assert np.abs(mean - (weights @ keys[:3].T) / total[:, None]).max() <= 0.9 * rtol + 1e-13


def test_no_degree_where_rounding_or_the_table_ends():
    keys = tokens("uniform", 300, seed=2)
    degrees = [least_degree_of_harmonics(keys, beta * keys[:3], 1e-7) for beta in (0.0, 0.5, 2.0, 6.0, 40.0)]
    assert degrees == sorted(degrees[:4]) + [-1] and degrees[0] == 0 and degrees[3] <= MOST_DEGREE
    assert least_degree_of_harmonics(keys, 6.0 * keys[:3], 1e-12) == -1
