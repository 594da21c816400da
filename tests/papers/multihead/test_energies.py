import pytest
import torch

from metastable import Measure, sphere
from metastable.papers.multihead.energies import OPPOSITE, balance, flat_balance
from metastable.papers.multihead.heads import scalar, softmax, symmetric, together
from metastable.papers.running import equiangular
from metastable.theory.scalar_heads import critical_beta, pull
from small_claims import small_verdict


def test_the_balance_closes_for_one_softmax_head_only_with_its_partition():
    M, x = symmetric(4, 1, seed=5), sphere.uniform(6, 4, seed=5)
    assert balance(M, 1.0, together(M, 1.0), x) == pytest.approx(1.0, abs=1e-9)
    assert abs(balance(M, 1.0, softmax(M, 1.0), x) - 1) > 1e-2


def test_the_balance_without_the_sphere_is_that_of_the_plain_gradient():
    x = torch.tensor([[1.0, 0.5], [-0.3, 0.8], [0.2, -1.1]], dtype=torch.float64)
    assert flat_balance(symmetric(2, 2, seed=3), 0.7, x) == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(("m", "repulsion", "g", "beta"), OPPOSITE)
def test_opposite_heads_cluster_without_softmax_and_disperse_with_it(m, repulsion, g, beta):
    assert beta > critical_beta(m, -repulsion, g) and pull(g, beta, (m, repulsion)) > 0
    rho = Measure(equiangular(8, g))
    v = softmax(scalar(8, (m, repulsion)), beta).velocity(0.0, *rho)
    assert float(v[0] @ rho.points[1]) < 0


def test_the_energy_of_aligned_heads_is_drawn_above_its_start():
    series = small_verdict("multihead-energy-grows").figure.series
    solid, dashed = series[::2], series[1::2]
    assert all((line.y[1:] > line.y[:-1]).all() for line in solid)
    assert all(a.colour == b.colour and b.style == "dashed" for a, b in zip(solid, dashed, strict=True))
