import pytest
import torch

from metastable.papers.common_noise.synchronisation import axial_spread, spread
from small_claims import small_verdict


def test_spreads_of_consensus_and_of_antipodes():
    x = torch.tensor([0.6, 0.8], dtype=torch.float64)
    together, apart = torch.stack([x, x, x]), torch.stack([x, -x, x, -x])
    assert spread(together) == pytest.approx(0.0, abs=1e-12)
    assert spread(apart) == pytest.approx(1.0) and axial_spread(apart) == pytest.approx(0.0, abs=1e-12)
    assert axial_spread(torch.eye(2, dtype=torch.float64)) == pytest.approx(0.5)


def test_odd_activations_end_in_two_clusters():
    for row in small_verdict("odd-activations-split").table:
        assert row["up to sign"] < 0.05 < 0.3 < row["with sign"]
