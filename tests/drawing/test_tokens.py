import numpy as np
import pytest

from metastable.drawing.tokens import evenly, graticule, place_colours, principal_axes, view_rotation


@pytest.mark.parametrize(("total", "count"), [(1, 6), (5, 6), (6, 6), (100, 7), (61, 61)])
def test_frames_are_spread_with_first_and_last(total, count):
    chosen = evenly(total, count)
    assert len(chosen) == min(total, count) and chosen[0] == 0 and chosen[-1] == total - 1
    assert np.ptp(np.diff(chosen)) <= 1 if len(chosen) > 1 else True


def test_view_is_a_rotation_that_looks_along_its_direction():
    rotation = view_rotation(25.0, 35.0)
    assert np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-14)
    assert np.linalg.det(rotation) == pytest.approx(1.0, abs=1e-14)
    assert np.allclose(view_rotation(90.0, 0.0)[2], [0, 0, 1], atol=1e-14)


def test_principal_axes_are_those_of_the_second_moment():
    x = np.diag([3.0, 1.0, 2.0])
    assert np.allclose(np.abs(principal_axes([x], np.full(3, 1 / 3))), [[1, 0], [0, 0], [0, 1]], atol=1e-14)


def test_the_graticule_lies_on_the_sphere_and_its_rings_are_closed():
    rings = graticule([0, 90], 13)
    assert len(rings) == 7
    for ring in rings:
        assert np.allclose((ring**2).sum(1), 1.0, atol=1e-14) and np.allclose(ring[0], ring[-1], atol=1e-14)
    assert np.allclose(rings[-1][:, 0], 0.0, atol=1e-14)  # the meridian of 90 degrees has x = 0


def test_a_colour_says_where_a_token_started():
    circle = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    colours = place_colours(circle)
    assert colours.shape == (3, 4) and len(np.unique(colours, axis=0)) == 3
    assert np.array_equal(place_colours(circle[::-1]), colours[::-1])
    above, below = place_colours(np.array([[0.6, 0.0, 0.8], [0.6, 0.0, -0.8]]))
    assert above[0] > below[0]
