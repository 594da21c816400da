import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.papers.chaos.circle import along, finite_modes
from metastable.papers.chaos.sampling import Mean
from small_claims import small_verdict


def test_distances_on_the_circle_are_those_of_optimal_transport():
    tokens = ms.sphere.uniform(12, 2, seed=3)
    fine = ms.Measure(ms.sphere.equispaced(6000))
    expected = float(ms.wasserstein(ms.Measure(tokens), fine, metric="geodesic")) ** 2
    assert float(along(tokens)) == pytest.approx(expected, rel=1e-3)
    assert float(along(torch.tensor([[1.0, 0.0]]).double())) == pytest.approx(math.pi**2 / 3)


def test_the_table_holds_every_case():
    rows = small_verdict("finite-context-circle").table
    assert len(rows) == 30 and all(row["E W2^2"] == pytest.approx(row["formula"], rel=0.35) for row in rows)


@pytest.mark.parametrize("error", [1e-9, 0.02])
def test_what_finite_modes_add_is_known_to_the_error_of_the_ratios(error):
    counts = [16, 32, 64, 128]
    powers = np.array(counts) ** -0.75
    found = finite_modes({n: Mean(1.01 - 0.5 * p, error) for n, p in zip(counts, powers, strict=True)}, counts[1:])
    of_slope = error / math.sqrt(np.square(powers - powers.mean()).sum())
    assert found == pytest.approx((0.5 + 2 * of_slope) * powers[1:].mean(), rel=1e-6)
