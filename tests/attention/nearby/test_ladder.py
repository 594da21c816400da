"""Harmonics times coordinates, and their derivatives, against what tokens say."""

from __future__ import annotations

import numpy as np
import pytest

from attention.nearby.nearby_tokens import along, sorted_tokens
from metastable.attention.nearby.harmonics import moments
from metastable.attention.nearby.ladder import second_moments, slopes


def gathered(keys, degree):
    """(p + 1, p + 1, 2), by [m, l]: sums of m_j D_lm(k_j)."""
    out = np.zeros((degree + 1, degree + 1, 8))
    moments(np.ascontiguousarray(keys), 0, keys.shape[1], degree, out)
    return out[:, :, [3, 7]]


@pytest.mark.parametrize("degree", [0, 1, 2, 9])
def test_second_moments_are_those_of_masses_times_coordinates(degree):
    keys = sorted_tokens(50, 3, seed=1)
    found = second_moments(gathered(keys, degree + 2), degree)
    for column, (a, b) in enumerate(((0, 0), (1, 1), (0, 1), (0, 2), (1, 2))):
        weighted = np.concatenate([keys[:3], keys[3:] * keys[a] * keys[b]])
        np.testing.assert_allclose(found[:, :, [column, 5 + column]], gathered(weighted, degree), atol=1e-13)


@pytest.mark.parametrize("degree", [0, 1, 2, 7])
def test_slopes_are_those_of_the_series(degree):
    """Against differences of H along the sphere, from the harmonics of one token at a time."""
    rng = np.random.default_rng(3)
    series = np.tril(rng.normal(size=(8, degree + 1, degree + 1))).transpose(2, 1, 0)  # [m, l]: l >= m
    series[0, :, 4:] = 0.0  # there is no sine of order zero

    def height(at):
        of = gathered(np.append(at, 1.0)[:, None], degree)
        factor = np.append(at, -1.0)
        return float((of[:, :, 0] * (series[:, :, :4] @ factor) + of[:, :, 1] * (series[:, :, 4:] @ factor)).sum())

    gradient, step = slopes(np.ascontiguousarray(series), degree), 1e-5
    for point in sorted_tokens(6, 3, seed=4)[:3].T:
        of = gathered(np.append(point, 1.0)[:, None], degree)
        found = (of[:, :, :1] * gradient[:, :, :3] + of[:, :, 1:] * gradient[:, :, 3:]).sum(axis=(0, 1))
        for direction in along(point[:, None], np.eye(3)).T:
            there, back = (point + sign * step * direction for sign in (1.0, -1.0))
            slope = height(there / np.linalg.norm(there)) - height(back / np.linalg.norm(back))
            np.testing.assert_allclose(found @ direction, slope / (2.0 * step), atol=1e-6)
