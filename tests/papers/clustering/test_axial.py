import numpy as np
import pytest
import torch

from metastable.flows import SelfAttention
from metastable.meanfield import axial_disorder
from metastable.measure import Measure
from metastable.papers.clustering.axial import START, disorder, late_rate, quantile_tokens, run
from metastable.solve import solve
from metastable.theory import moebius
from metastable.weights import AttentionWeights


@pytest.mark.parametrize("d", [2, 3, 6])
def test_quantiles_are_those_of_the_law(d):
    u = quantile_tokens(4000, d).points[:, 0]
    assert float(u.mean()) == pytest.approx(moebius.order(START, d), abs=2e-4)
    start = moebius.moved_overlap(u, -START)
    assert float(start.square().mean()) == pytest.approx(1 / d, abs=2e-3)


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_mirrored_tokens_are_tokens_of_the_full_flow(beta):
    half, times = quantile_tokens(20, 2), np.linspace(0, 5, 6)
    both = torch.cat([half.points, half.points * torch.tensor([1.0, -1.0], dtype=torch.float64)])
    flow = SelfAttention(AttentionWeights(V=np.eye(2), B=np.eye(2)), beta)
    full = solve(flow, Measure(both), 5.0, times, rtol=1e-9, atol=1e-11)
    R = torch.einsum("n,mn->m", full.mass, full.points[..., 0]).numpy()
    assert axial_disorder(run(2, beta, times, rho0=half)).numpy() == pytest.approx(1 - R, abs=1e-7)


def test_disorder_of_the_density_is_the_closed_form():
    times = np.linspace(0, 9, 5)
    exact = moebius.disorder(moebius.shift(times, START, 4), 4)
    assert disorder(4, 0.0, times) == pytest.approx(exact.numpy(), rel=1e-6)


def test_rates_are_fitted_inside_the_window():
    t = np.linspace(0, 10, 101)
    kinked = np.where(t < 5, np.exp(-t), np.exp(-5) * np.exp(-3 * (t - 5)))
    assert late_rate(t, kinked, (1e-8, 1e-3)) == pytest.approx(3.0, rel=1e-9)
