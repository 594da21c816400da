"""Attention whose error is relative to the most that a token could attend to."""

import pytest
import torch

from attention.sphere.sphere_tokens import masses, tokens
from metastable import sphere
from metastable.attention import KERNELS, Operands
from metastable.attention.thin_air import LARGEST_RTOL, LEAST_ASKED, attend_in_thin_air

SHEAR = torch.tensor([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)


def crowd_and_few(n, width, few):
    """Two poles of that width, and tokens in between that have next to no mass."""
    poles = torch.eye(3, dtype=torch.float64)[0] * torch.tensor([[1.0], [-1.0]]).double().repeat(n // 2, 1)
    crowd = torch.nn.functional.normalize(poles + width * tokens("uniform", n, 0), dim=1)
    points = torch.cat([crowd, sphere.uniform(few, 3, seed=1)])
    mass = torch.cat([masses(n, 2) + 1e-6, torch.full((few,), 1e-14).double()])
    return points, mass / mass.sum()


@pytest.mark.parametrize("matrix", [torch.eye(3, dtype=torch.float64), SHEAR])
@pytest.mark.parametrize(("width", "few"), [(0.1, 400), (1e-3, 40), (1e-9, 900)])
@pytest.mark.parametrize("error", [1e-6, 5e-12])
def test_what_errs_more_sees_less(matrix, width, few, error):
    beta = 40.0
    points, mass = crowd_and_few(6000, width, few)
    queries = points @ matrix
    exact = KERNELS["fused"](Operands(queries, points, points, mass, beta))
    seen = torch.exp(exact.log_partition - beta * queries.norm(dim=1))
    found = attend_in_thin_air(Operands.known(queries, points, mass, beta, matrix), error, float(seen.min()))
    apart = (found.mean - exact.mean).norm(dim=1) + (found.log_partition - exact.log_partition).abs()
    assert found.kernel == "sphere_grid"
    assert float((apart * seen).max()) < error


def test_one_error_for_all_is_too_large_in_a_crowd():
    """The rival: what the thinnest air needs, asked of a kernel whose rows all err alike."""
    points, mass = crowd_and_few(6000, 0.1, 400)
    operands = Operands(points, points, points, mass, 40.0)
    exact = KERNELS["fused"](operands)
    seen = torch.exp(exact.log_partition - 40.0)
    found = {
        "alike": KERNELS["nearby"](operands, LARGEST_RTOL),
        "unevenly": attend_in_thin_air(operands, 5e-12, float(seen.min())),
    }
    off = {name: float(((each.mean - exact.mean).norm(dim=1) * seen).max()) for name, each in found.items()}
    assert off["unevenly"] < 5e-12 < off["alike"]


def test_without_a_grid_no_row_errs_more():
    points, mass = crowd_and_few(6000, 1e-3, 100)
    flat = SHEAR @ torch.diag(torch.tensor([1.0, 1.0, 1e-5]).double())
    queries = points @ flat
    exact = KERNELS["fused"](Operands(queries, points, points, mass, 40.0))
    found = attend_in_thin_air(Operands.known(queries, points, mass, 40.0, flat), 1e-9, 1e-20)
    assert found.kernel != "sphere_grid"
    assert float((found.mean - exact.mean).norm(dim=1).max()) < 1e-9


def test_few_tokens_meet_all_pairs():
    points, mass = crowd_and_few(100, 0.1, 10)
    found = attend_in_thin_air(Operands(points, points, points, mass, 5.0), 1e-12, 1e-3)
    assert found.kernel == "fused" and LEAST_ASKED > 1e-12
