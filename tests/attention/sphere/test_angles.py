"""Polar coordinates of many points against those of numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metastable.attention.sphere.angles import polar

UNTURNED = np.eye(3)


def polar_of(points, matrix=UNTURNED, scale=1.0):
    theta, phi = np.empty(len(points)), np.empty(len(points))
    polar(points, matrix, scale, theta, phi)
    return theta, phi


def angles(points):
    x, y, z = points.T
    phi = np.arctan2(y, x)
    return np.arctan2(np.hypot(x, y), z), np.where(phi < 0.0, phi + 2.0 * math.pi, phi)


@pytest.mark.parametrize("n", [1, 7, 256, 1003])
@pytest.mark.parametrize("size", [1e-100, 1.0, 1e100])
def test_angles_are_those_of_numpy(n, size) -> None:
    points = size * np.random.default_rng(n).standard_normal((n, 3))
    for found, expected in zip(polar_of(points), angles(points), strict=True):
        np.testing.assert_allclose(found, expected, rtol=8e-16, atol=2e-16)


def test_points_near_the_poles_and_on_every_border() -> None:
    steps = np.array([0.0, 1e-18, -1e-18, 1e-9, math.sqrt(2.0) - 1.0, 1.0, -1.0, -1e-9])
    points = np.array(np.meshgrid(steps, steps, steps)).reshape(3, -1).T
    points = np.ascontiguousarray(points[np.linalg.norm(points, axis=1) > 0.0])
    for found, expected in zip(polar_of(points), angles(points), strict=True):
        np.testing.assert_allclose(found, expected, rtol=8e-16, atol=2e-16)
    assert np.array_equal(polar_of(np.zeros((1, 3))), np.zeros((2, 1)))


def test_points_times_a_matrix_in_steps_of_a_grid() -> None:
    rng = np.random.default_rng(3)
    points, matrix = rng.standard_normal((50, 3)), rng.standard_normal((3, 3))
    for found, expected in zip(polar_of(points, matrix, 7.0), angles(points @ matrix), strict=True):
        np.testing.assert_allclose(found, 7.0 * expected, rtol=1e-13)


def test_digits_of_a_row_do_not_depend_on_the_others() -> None:
    points = np.random.default_rng(4).standard_normal((1000, 3))
    whole = np.array(polar_of(points, points[:3].copy()))
    for first, last in ((0, 1), (5, 18), (300, 999)):
        assert np.array_equal(np.array(polar_of(points[first:last], points[:3].copy())), whole[:, first:last])
