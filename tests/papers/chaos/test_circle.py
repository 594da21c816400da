import math

import pytest
import torch

import metastable as ms
from metastable.papers.chaos.circle import along
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
