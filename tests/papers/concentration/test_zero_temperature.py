import numpy as np
import pytest
import torch

from metastable.papers.concentration.zero_temperature import (
    CLOSED,
    onto,
    random_symmetric,
    subsphere_nodes,
    two_level,
)
from metastable.theory import distance_to_limit, spectrum, uniform_distance
from small_claims import small_verdict


@pytest.mark.parametrize(("d", "k"), [*CLOSED, (4, 3)])
def test_subsphere_nodes_reproduce_the_closed_forms(d, k):
    times = [1.0, 2.0, 4.0, 8.0]
    measured = distance_to_limit(two_level(d, k), subsphere_nodes(d, k, 36.0), times)
    assert np.allclose(measured, uniform_distance(d, k, times), atol=1e-9)


@pytest.mark.parametrize("d", [2, 5])
def test_random_weights_have_a_symmetric_product_with_eigenvalue_2_on_top(d):
    found = spectrum(random_symmetric(d, seed=d))
    assert found.M.symmetric and found.M.value == pytest.approx(2.0, abs=1e-10) and found.M.gap >= 1.0 - 1e-10


def test_points_are_sent_onto_the_dominant_space_along_the_others():
    matrix = torch.tensor([[2.0, 1.0], [0.0, 1.0]], dtype=torch.float64)  # eigenvectors (1, 0) and (1, -1)
    points = torch.tensor([[0.6, 0.8], [0.6, -0.8], [-0.8, 0.6]], dtype=torch.float64)
    assert np.allclose(onto(matrix, points), [[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])


def test_closed_forms_are_drawn_as_functions_in_the_colours_of_their_points():
    series = small_verdict("zero-temperature-closed-forms").figure.series
    for line, points in zip(series[::2], series[1::2], strict=True):
        assert len(line.x) > 100 and points.style == "points" and line.colour == points.colour
        assert np.allclose(np.interp(points.x, line.x, line.y), points.y, rtol=2e-3)
