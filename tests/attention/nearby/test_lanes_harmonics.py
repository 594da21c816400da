"""Sums over degrees, eight tokens at a time, against the harmonics of one token after the other."""

from __future__ import annotations

import numpy as np
import pytest

from attention.nearby.nearby_tokens import sorted_tokens
from metastable.attention.nearby.harmonics import moments
from metastable.attention.nearby.lanes_harmonics import look, look_and_send

N = 24


def harmonics(points, degree):
    """[m, l, token]: R_lm with the factor cos(m phi), on the sphere."""
    found = np.empty((degree + 1, degree + 1, points.shape[1]))
    for i in range(points.shape[1]):
        out = np.zeros((degree + 1, degree + 1, 8))
        moments(np.append(points[:3, i], 1.0)[:, None], 0, 1, degree, out)
        found[:, :, i] = out[:, :, 3]
    return found


def first_factor(m):
    """R_mm of a token in the plane y = 0, where cos(m phi) is one, over x^m."""
    return float(np.prod([np.sqrt((2.0 * k - 1.0) / (2.0 * k)) for k in range(2, m + 1)]))


@pytest.mark.parametrize(("m", "degree"), [(0, 0), (0, 7), (1, 7), (4, 7), (7, 7)])
def test_series_and_gathered_columns_are_sums_of_harmonics(m, degree):
    rng = np.random.default_rng(1)
    points = sorted_tokens(N, 3, seed=2)
    points[0], points[1] = np.hypot(points[0], points[1]), 0.0
    of = harmonics(points, degree)[m] / points[0] ** m  # [l, token], up to cos(m phi)
    z, ones, scale = points[2].copy(), np.ones(N), first_factor(m)
    series = rng.normal(size=(degree + 1, degree + 1, 10))
    weights, rows = rng.normal(size=(degree + 1, N)), rng.normal(size=(8, N))
    part, gathered = np.empty((10, N)), np.zeros((degree + 1, 8, 8))
    flat = series.ravel(), z, ones, weights.ravel(), N, rows.ravel(), part.ravel(), gathered.ravel()
    look_and_send(m, degree, scale, *flat)
    here = slice(m, degree + 1)
    weighted = (weights * of)[here]
    np.testing.assert_allclose(part, series[m, here].T @ weighted, atol=1e-12)
    np.testing.assert_allclose(gathered.sum(axis=2)[here], weighted @ rows.T, atol=1e-12)
    assert (gathered[:m] == 0.0).all()
    few, found = np.ascontiguousarray(series[:, :, :6]), np.empty((6, N))
    look(m, degree, scale, few.ravel(), z, ones, N, found.ravel())
    np.testing.assert_allclose(found, few[m, here].T @ of[here], atol=1e-12)
