"""The ground cost: chordal and geodesic distances of rows, also where arccos would lose half of the digits."""

import math

import numpy as np
import pytest

from metastable import sphere
from metastable.errors import InvalidInput
from metastable.transport.ground import check_metric, ground_cost, paired_cost


@pytest.mark.parametrize("p", [1, 2, 3])
def test_costs_of_angles(p: int) -> None:
    angles = np.array([0.0, 1e-9, 0.3, math.pi / 2, 3.0, math.pi])
    x, y = sphere.from_angles(angles).numpy(), np.tile([1.0, 0.0], (len(angles), 1))
    np.testing.assert_allclose(paired_cost(x, y, "geodesic", p), angles**p, rtol=1e-7, atol=1e-30)
    np.testing.assert_allclose(
        paired_cost(x, y, "chordal", p), (2 * np.sin(angles / 2)) ** p, rtol=1e-7, atol=1e-30
    )


@pytest.mark.parametrize("metric", ["chordal", "geodesic"])
def test_the_matrix_holds_the_pairs(metric: str) -> None:
    x, y = sphere.uniform(6, 4, seed=1).numpy(), sphere.uniform(5, 4, seed=2).numpy()
    cost = ground_cost(x, y, metric, 2)
    for j in range(5):
        np.testing.assert_allclose(cost[:, j], paired_cost(x, np.tile(y[j], (6, 1)), metric, 2), atol=1e-14)


@pytest.mark.parametrize("p", [0.5, 11, math.inf, math.nan, "2", None, [2], int("1" + 400 * "0")], ids=range(8))
def test_exponents_that_are_none(p: object) -> None:
    with pytest.raises(InvalidInput, match=r"^p must "):
        check_metric("chordal", p)


@pytest.mark.parametrize(
    ("x", "y"), [(None, np.eye(2)), (np.eye(2), np.eye(3)), ([[]], [[]]), ([1.0], [1.0]), ([[np.nan]], [[1.0]])]
)
def test_rows_that_do_not_fit(x: object, y: object) -> None:
    with pytest.raises(InvalidInput):
        ground_cost(x, y)
