"""Masses on the fine grid become weights of coarse nodes, and sums at coarse nodes fields on the fine grid."""

from __future__ import annotations

import numpy as np
import pytest

from attention.sphere.sphere_tokens import tokens
from metastable.attention.sphere.gridding import columns_of, interpolator, rows_of
from metastable.attention.sphere.nodes import ring_nodes
from metastable.attention.sphere.transforms import fine_field, node_weights, placed, slopes, spectra
from metastable.attention.sphere.window import window

FINE = 96


def nodes_of(n):
    return ring_nodes(n // 2)


def smooth(k):
    """A polynomial of degree 5 of the unit vectors in the second-to-last axis or the rows."""
    return 1.0 + k[0] * k[1] - 0.5 * k[2] ** 3 + k[0] ** 4 * k[2]


@pytest.mark.parametrize("n", [48, 32, 16])
def test_weights_of_nodes_sum_smooth_functions_as_the_keys_do(n) -> None:
    keys = tokens("clustered", 400, 0).numpy()
    mass = np.random.default_rng(1).standard_normal(400)
    kept = window(16, 2.0, FINE)
    weights = node_weights(spectra(placed(keys, FINE), mass[:, None], kept, 48)[0], kept, n)
    exact = mass @ smooth(keys.T)
    assert (weights * smooth(nodes_of(n).transpose(1, 0, 2))).sum() == pytest.approx(exact, rel=1e-11)


def test_fields_are_interpolated_to_their_stated_error() -> None:
    n, kept = 32, window(16, 2.0, FINE)
    along = np.fft.rfft(smooth(nodes_of(n).transpose(1, 0, 2)))[:, : n // 2]
    fields = np.ones((rows_of(FINE, 16), 4, columns_of(FINE, 16)))
    rough = fine_field(along, kept, fields[:, 3])
    points = tokens("uniform", 300, 2).numpy()
    at, mean, total = placed(3.0 * points, FINE), np.empty((300, 3)), np.empty(300)
    interpolator(16, len(kept.table) - 1)(at.theta, at.phi, at.order, 0, 300, kept.table, fields, mean, total)
    assert 0.0 < np.abs(total - smooth(points.T)).max() <= rough + 1e-14 and rough < 1e-9


@pytest.mark.parametrize("n", [16, 48])
def test_slopes_are_the_gradient_along_the_sphere(n) -> None:
    x, y, z = k = nodes_of(n).transpose(1, 0, 2)
    slope = np.stack((y + 4.0 * x**3 * z, x, -1.5 * z**2 + x**4))
    slope -= (slope * k).sum(axis=0) * k
    np.testing.assert_allclose(slopes(smooth(k)).transpose(1, 0, 2), slope, atol=1e-12)
