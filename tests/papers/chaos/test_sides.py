import numpy as np
import pytest

import metastable as ms
from metastable.papers.chaos.sides import CASES, formula, law, squared_distance, uncorrelated
from metastable.theory import uniform_distance
from small_claims import small_verdict


def test_squared_distances_are_those_of_optimal_transport():
    tokens = ms.sphere.uniform(3 * 8, 3, seed=5).view(3, 8, 3)
    poles = ms.Measure([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    found = squared_distance(tokens[..., 0].numpy())
    expected = [float(ms.wasserstein(ms.Measure(x), poles)) ** 2 for x in tokens]
    assert found == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_heights_of_the_law(d):
    height = law(d).points[:, 0].numpy()
    assert (height**2).mean() == pytest.approx(1 / d, rel=1e-3) and height.mean() == pytest.approx(0.0, abs=1e-12)
    assert (2 * (1 - np.abs(height))).mean() == pytest.approx(uniform_distance(d, 1, 0.0) ** 2, rel=1e-3)


def test_all_cases_are_in_the_range_of_the_formula():
    for case, (quick, full) in CASES.items():
        for n in {*quick, *full}:
            assert formula(case, n).in_range, (case, n, formula(case, n).why)
            assert 0 < uncorrelated(case, n) < formula(case, n).context


def test_tables():
    rows = small_verdict("finite-context-law").table
    assert len(rows) == 11 and all(row["E W2^2"] == pytest.approx(row["formula"], rel=0.3) for row in rows)
    assert len(small_verdict("finite-context-attention").table) == 11
