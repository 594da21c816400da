import math

import numpy as np
import pytest
import torch
from scipy import stats

import metastable as ms
from metastable.errors import InvalidInput
from metastable.theory.closure import Cluster


@pytest.mark.parametrize(("V_2", "B"), [(2.0, (4.0, 1.0)), (1.5, (2.0, 0.5)), (0.5, (1.0, 1.0))])
def test_closure_against_simulation(V_2, B):
    beta, variance, offset, n = 400.0, 0.02, 1e-3, 500
    cluster = Cluster(V_1=1.0, V_k=V_2, B_1=B[0], B_k=B[1], beta=beta, variance=variance)
    quantiles = stats.norm.ppf((np.arange(n) + 0.5) / n)
    theta = offset + quantiles / quantiles.std() * math.sqrt(variance)
    w = ms.AttentionWeights(V=np.diag([1.0, V_2]), B=np.diag(B))
    times = np.linspace(0, 3, 13)
    path = ms.solve(ms.SelfAttention(w, beta=beta), ms.sphere.from_angles(theta), t=3.0, times=times)
    angle = torch.stack([ms.sphere.angles(x) for x in path.points])
    xi, sigma = cluster.solve(times, offset)
    # the closure is second order in the width, hence the tolerance of a few per cent of a logarithm
    assert float((angle.mean(1) / xi).log().abs().max()) < 0.05
    assert float((angle.var(1, unbiased=False) / sigma).log().abs().max()) < 0.1


def test_limits_of_the_closure():
    wide = Cluster(1.0, 2.0, 4.0, 1.0, beta=1e9)
    xi, sigma = wide.solve([0.0, 1.0], 1e-3)
    assert float(torch.log(xi[1] / xi[0])) == pytest.approx(-wide.local_rate, abs=1e-6)
    assert float(torch.log(sigma[1] / sigma[0])) == pytest.approx(-2 * wide.local_rate, abs=1e-6)
    narrow = Cluster(1.0, 2.0, 4.0, 1.0, beta=1e-9)
    xi, sigma = narrow.solve([0.0, 1.0], -1e-3)
    assert float(torch.log(xi[1] / xi[0])) == pytest.approx(1.0, abs=1e-6)
    assert float(torch.log(sigma[1] / sigma[0])) == pytest.approx(-2.0, abs=1e-6)


def test_crossing_and_exit_times():
    c = Cluster(1.0, 2.0, 4.0, 1.0, beta=100.0)
    assert c.local_rate == pytest.approx(0.5)
    assert c.crossing_time == pytest.approx(math.log(400.0))
    n = 600
    crude = c.crossing_time + math.log(0.5 * math.sqrt(400.0) * math.sqrt(n / 2))
    assert c.crude_exit_time(c.sampled_offset(n)) == pytest.approx(crude)
    exit_time = c.exit_time(c.sampled_offset(n))
    assert abs(exit_time - crude) < 2
    xi, _ = c.solve([exit_time], c.sampled_offset(n))
    assert float(xi[0]) == pytest.approx(0.5, rel=1e-6)
    assert Cluster(2.0, 1.0, 1.0, 1.0, beta=100.0).exit_time(0.01) == math.inf
    assert Cluster(1.0, 3.0, 1.0, 1.0, beta=100.0).crossing_time == math.inf


def test_crossing_time_slope_in_log_beta():
    w = ms.AttentionWeights(V=np.diag([1.0, 2.0]), B=np.diag([4.0, 1.0]))
    crossings = []
    for beta in (50.0, 400.0):
        theta = np.linspace(-0.5, 0.5, 201)
        path = ms.solve(
            ms.SelfAttention(w, beta=beta), ms.sphere.from_angles(theta), t=8.0, times=np.linspace(0, 8, 81)
        )
        width = torch.stack([ms.sphere.angles(x).std() for x in path.points]).numpy()
        crossings.append(float(np.interp(0.5 * math.log(beta * 4), -np.log(width), np.asarray(path.times))))
    slope = (crossings[1] - crossings[0]) / math.log(8)
    assert slope == pytest.approx(1 / (2 * 0.5), rel=0.1)


def test_refusals():
    with pytest.raises(InvalidInput, match="B_1 > 0"):
        Cluster(1.0, 2.0, -1.0, 1.0, beta=10.0)
    with pytest.raises(InvalidInput, match="beta must be >= 1e-100"):
        Cluster(1.0, 2.0, 1.0, 1.0, beta=0.0)
    with pytest.raises(InvalidInput, match="offset"):
        Cluster(1.0, 2.0, 4.0, 1.0, beta=10.0).exit_time(0.7)


def test_parity_of_the_closure():
    # two clusters that attend each other, mirrored weights V' = (1, -2): the offset in common decays at V'_k - V'_1
    # once narrow, the opposite one grows at -V'_k - V'_1
    assert Cluster(1.0, -2.0, 3.0, -0.2, beta=64.0).exit_time(0.01) == math.inf
    odd = Cluster(1.0, -2.0, 3.0, -0.2, beta=64.0, parity=-1)
    assert odd.escape_rate == 1.0 and math.isfinite(odd.exit_time(0.01))
    with pytest.raises(InvalidInput, match="parity"):
        Cluster(1.0, 2.0, 1.0, 1.0, beta=1.0, parity=0)


def test_a_slow_escape():
    """Beyond what can be integrated: straight lines, a few per cent off; near it both agree."""
    slow = Cluster(1.0, 1.0 + 1e-13, 4.0, 1.0, beta=100.0)
    assert slow.exit_time(0.01) == slow.crude_exit_time(0.01)
    near = Cluster(1.0, 1.0 + 1e-8, 4.0, 1.0, beta=100.0)
    assert near.exit_time(0.01) == pytest.approx(near.crude_exit_time(0.01), rel=0.05)
    with pytest.raises(InvalidInput, match="fastest times"):
        near.solve(1e15, 0.01)
