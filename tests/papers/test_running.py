"""What several papers run: equiangular tokens, runs at given times, times of a quadrature."""

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.papers.running import equiangular, gauss, kept


@pytest.mark.parametrize(("n", "g"), [(2, 0.9), (5, 0.0), (6, -0.19)])
def test_all_overlaps_are_alike(n, g):
    x = equiangular(n, g)
    torch.testing.assert_close(x @ x.T, (1 - g) * torch.eye(n, dtype=torch.float64) + g, rtol=0, atol=1e-14)


def test_a_run_is_kept_at_the_times_and_meets_its_tolerance():
    flow = ms.SelfAttention(ms.AttentionWeights(V=np.eye(2), B=np.eye(2)), 2.0)
    start = ms.sphere.uniform(5, 2, seed=1)
    path = kept(flow, start, [0.0, 0.5, 2.0], 1e-6)
    fine = ms.solve(flow, start, 2.0, times=[0.0, 0.5, 2.0], rtol=1e-12, atol=1e-13)
    assert path.times.tolist() == [0.0, 0.5, 2.0]
    assert float((path.points - fine.points).abs().max()) < 1e-6


@pytest.mark.parametrize(("panels", "order"), [(1, 40), (8, 8)])
def test_a_quadrature_counts_the_inside_and_not_the_ends(panels, order):
    times, weights = gauss(1.5, panels, order)
    assert times[0] == 0.0 and times[-1] == 1.5 and weights[0] == weights[-1] == 0.0
    assert len(times) == panels * order + 2 and bool((np.diff(times) > 0).all())
    assert weights @ np.cos(3 * times) == pytest.approx(np.sin(4.5) / 3, abs=1e-13)
