"""Spikes that nodes do not see: found and weighed where the probes reach them, nothing said of laws without."""

import pytest
import torch

from metastable import sphere
from metastable.meanfield import Density, Skewed, VonMisesFisher
from metastable.meanfield.spikes import integral_and_spike


@pytest.mark.parametrize("kappa", [1e4, 1e5, 1e6])
@pytest.mark.parametrize("share", [0.01, 0.3])
def test_a_spike_is_weighed(kappa, share):
    for seed in range(3):
        spike = VonMisesFisher(sphere.uniform(1, 3, seed=seed)[0], kappa)
        law = Density(lambda x, spike=spike: 1 - share + share * spike(x), 3)
        total, found = integral_and_spike(law, 1 - share, 1 - share)
        assert found == pytest.approx(share, rel=2e-2)
        assert total == pytest.approx(1.0, abs=2e-2 * share)


def test_smooth_laws_have_none():
    for law, highest in ((Skewed([1.0, 1.0, 0.0], 0.9), 1.9), (VonMisesFisher([1.0, 0.0, 1.0], 50.0), 100.0)):
        assert integral_and_spike(law, highest, 1.0) == (1.0, 0.0)
    half = Density(lambda x: (x[:, 0] > 0.2).double(), 3)
    assert integral_and_spike(half, 1.0, 0.4001) == (0.4001, 0.0)


def test_the_whole_law_may_be_one_spike():
    law = Density(lambda x: torch.exp(-1e5 * (x - torch.tensor([0.0, 0.0, 1.0])).square().sum(1)), 3)
    total, found = integral_and_spike(law, 1e-30, 1e-30)
    assert found == pytest.approx(1.0) and total == pytest.approx(1 / 4e5, rel=1e-3)
