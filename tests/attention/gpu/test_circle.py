"""Cells of the circle on the GPU."""

from __future__ import annotations

import pytest
import torch

from attention.gpu.problems import cloud, cuda, masses, unit
from metastable.attention.direct.dense import attend_dense
from metastable.attention.gpu.circle import LEAST_CELLS, attend_circle_gpu, cell_proxies, cells_for
from metastable.attention.gpu.kernels import attend_circle
from metastable.attention.operands import Operands
from metastable.errors import InvalidInput


@cuda
@pytest.mark.parametrize("beta", [0.0, 0.5, 8.0, 200.0])
@pytest.mark.parametrize("kind", ["uniform", "clustered", "antipodal", "duplicates"])
def test_circle_cells(beta: float, kind: str) -> None:
    for seed, weight in enumerate(("equal", "zeros")):
        g = torch.Generator().manual_seed(seed)
        k = cloud(kind, 5000, 2, g).cuda()
        q = cloud("uniform", 700, 2, g).cuda() @ torch.tensor([[1.0, 0.3], [-0.2, 0.7]], dtype=torch.float64).cuda()
        m = masses(weight, 5000, g).cuda()
        mean, log_partition, stated = attend_circle(Operands(q, k, k, m, beta), 1e-10)
        assert stated <= 1e-10
        exact = attend_dense(Operands(q, k, k, m, beta))
        assert float((mean - exact[0]).abs().max()) <= 1e-10
        assert float((log_partition - exact[1]).abs().max()) <= 1e-10


@cuda
def test_circle_cells_refuse_what_they_cannot() -> None:
    x = unit(10, 2, torch.Generator().manual_seed(0)).cuda()
    m = torch.full((10,), 0.1, dtype=torch.float64).cuda()
    double = 2 * x
    with pytest.raises(InvalidInput, match="length one"):
        attend_circle(Operands(x, double, double, m, 1.0), 1e-10)
    with pytest.raises(InvalidInput, match="that are the values"):
        attend_circle(Operands(x, x, x.clone(), m, 1.0), 1e-10)
    with pytest.raises(InvalidInput, match="311"):
        attend_circle(Operands(x, x, x, m, 1000.0), 1e-10)


@pytest.mark.parametrize("beta", [0.0, 2.0, 40.0])
def test_circle_cells_without_a_card(emulated: None, beta: float) -> None:
    g = torch.Generator().manual_seed(1)
    k = cloud("antipodal", 150, 2, g)
    q = cloud("uniform", 30, 2, g) @ torch.tensor([[1.0, 0.3], [-0.2, 0.7]], dtype=torch.float64)
    m = masses("zeros", 150, g)
    mean, log_partition = attend_circle_gpu(q, k, k, m, beta)
    exact = attend_dense(Operands(q, k, k, m, beta))
    assert float((mean - exact[0]).abs().max()) <= 1e-10
    assert float((log_partition - exact[1]).abs().max()) <= 1e-10


def test_proxies_keep_mass_and_moments(emulated: None) -> None:
    """sum_a W_a f(theta_a) = sum_j m_j f(theta_j) for f = 1, cos, sin: polynomials of degree 15 across a cell."""
    g = torch.Generator().manual_seed(2)
    k = cloud("uniform", 200, 2, g)
    m = masses("zeros", 200, g)
    points, weights = cell_proxies(k, m, 16)
    assert float((weights.sum() - m.sum()).abs()) <= 1e-14
    assert float((weights @ points - m @ k).abs().max()) <= 1e-14
    assert float((points.norm(dim=1) - 1).abs().max()) <= 1e-15


def test_cells_refuse_what_they_cannot_without_a_card() -> None:
    x = unit(10, 2, torch.Generator().manual_seed(0))
    m = torch.full((10,), 0.1, dtype=torch.float64)
    double = 2 * x
    with pytest.raises(InvalidInput, match="length one, got a length that is off by 1"):
        attend_circle_gpu(x, double, double, m, 1.0)
    with pytest.raises(InvalidInput, match=r"that are the values, got keys \(10, 2\)"):
        attend_circle_gpu(x, x, x.clone(), m, 1.0)
    with pytest.raises(InvalidInput, match=r"beta max\|q\| <= 311 on a GPU, got 1000"):
        attend_circle_gpu(x, x, x, m, 1000.0)


def test_cells_are_narrow_enough_for_the_interpolation() -> None:
    """On a cell of width 2 pi / cells the weight e^{reach cos} varies by at most e^4, and no cell is in vain."""
    assert cells_for(0.0) == cells_for(1.0) == LEAST_CELLS
    for reach in (11.0, 64.0, 311.0):
        assert reach * 2 * torch.pi / cells_for(reach) <= 4 < reach * 2 * torch.pi / (cells_for(reach) - 1)
