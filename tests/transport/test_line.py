"""Transport on the line: sorting is the linear program."""

import numpy as np
import pytest

from metastable.measure import Measure
from metastable.transport import wasserstein
from metastable.transport.line import line_cost, monotone_coupling


def test_euclidean_tokens() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 1)), rng.standard_normal((20, 1)) + 1
    a, b = Measure(x, sphere=False), Measure(y, sphere=False)
    found = wasserstein(a, b)
    assert found.method == "line" and found == pytest.approx(wasserstein(a, b, method="exact"), abs=1e-12)
    plane = wasserstein(
        Measure(rng.standard_normal((20, 2)), sphere=False), Measure(np.ones((20, 2)), sphere=False)
    )
    assert plane.method == "atoms"


def test_line_is_scipys_distance_of_numbers() -> None:
    from scipy.stats import wasserstein_distance

    rng = np.random.default_rng(1)
    x, a, y, b = rng.standard_normal(40), rng.random(40), rng.standard_normal(70), rng.random(70)
    a, b = a / a.sum(), b / b.sum()
    assert line_cost(x, a, y, b, 1) == pytest.approx(wasserstein_distance(x, y, a, b), rel=1e-12)


def test_monotone_coupling_has_its_marginals() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.dirichlet(np.ones(9)), rng.dirichlet(np.ones(5))
    i, j, mass = monotone_coupling(a, b)
    assert len(mass) <= 13 and (np.diff(i) >= 0).all() and (np.diff(j) >= 0).all()
    np.testing.assert_allclose(np.bincount(i, mass), a, atol=1e-15)
    np.testing.assert_allclose(np.bincount(j, mass), b, atol=1e-15)
