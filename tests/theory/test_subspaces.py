import math

import numpy as np
import pytest
import torch

from metastable.theory.subspaces import form_range, largest_angle, largest_image, least_turn

PLANE = torch.eye(3, dtype=torch.float64)[:, :2]


def test_forms_and_images_on_a_plane():
    A = np.array([[2.0, 1.0, 0.0], [-1.0, -1.0, 0.0], [0.0, 3.0, 7.0]])
    assert form_range(A, PLANE) == pytest.approx((-1.0, 2.0))  # the skew part has no form
    assert largest_image(A, PLANE[:, :1]) == pytest.approx(math.sqrt(5))
    assert largest_image(A, PLANE[:, :0]) == 0.0


@pytest.mark.parametrize("angle", [0.0, 0.2, 1.3])
def test_angle_between_a_line_and_its_image(angle):
    line = torch.tensor([[math.cos(angle)], [0.0], [math.sin(angle)]], dtype=torch.float64)
    assert largest_angle(PLANE[:, :1], line) == pytest.approx(angle, abs=1e-12)
    assert largest_angle(PLANE, line) == pytest.approx(angle, abs=1e-12)


def test_least_turn_is_one_minus_cosine_of_a_rotation_and_zero_where_a_direction_is_kept():
    turn = np.array([[math.cos(0.4), -math.sin(0.4), 0.0], [math.sin(0.4), math.cos(0.4), 0.0], [0.0, 0.0, 1.0]])
    for space in (PLANE[:, :1], PLANE):
        assert least_turn(turn, space) == pytest.approx(1 - math.cos(0.4), abs=1e-12)
    assert least_turn(turn, torch.eye(3, dtype=torch.float64)) == pytest.approx(0.0, abs=1e-8)  # the axis stays
