"""The linear program: the assignment of SciPy when all masses are equal, and refused beyond its size."""

import pytest
from scipy.optimize import linear_sum_assignment

from metastable import sphere
from metastable.errors import InvalidInput
from metastable.transport import wasserstein
from metastable.transport.exact import exact
from metastable.transport.ground import ground_cost
from metastable.transport.pair import make_pair


@pytest.mark.parametrize("metric", ["chordal", "geodesic"])
def test_equal_masses_are_an_assignment(metric: str) -> None:
    x, y = sphere.uniform(70, 3, seed=1), sphere.von_mises_fisher(70, [0, 0, 1.0], 4.0, seed=2)
    cost = ground_cost(x.numpy(), y.numpy(), metric, 2)
    rows, columns = linear_sum_assignment(cost)
    found = wasserstein(x, y, metric=metric, method="exact")
    assert found.exact and found**2 == pytest.approx(cost[rows, columns].mean(), abs=1e-12)


def test_the_order_of_tokens_does_not_matter() -> None:
    x, y = sphere.uniform(40, 3, seed=3).numpy(), sphere.uniform(30, 3, seed=4).numpy()
    forward, backward = (exact(make_pair(first, y), "chordal", 2) for first in (x, x[::-1].copy()))
    assert forward == pytest.approx(backward, abs=1e-13)


def test_too_large_a_program_is_refused() -> None:
    with pytest.raises(InvalidInput, match="needs 900 cost entries, more than max_pairs = 100"):
        wasserstein(sphere.uniform(30, 3, seed=1), sphere.uniform(30, 3, seed=2), max_pairs=100)
