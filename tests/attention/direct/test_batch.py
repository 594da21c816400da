import numpy as np
import pytest
import torch

from metastable.attention.direct.batch import attend_systems, systems_kernel


def dense(q, k, v, m, beta):
    scores = beta[:, None, None] * (q @ k.transpose(1, 2)) + torch.log(m)[:, None, :]
    return torch.softmax(scores, dim=2) @ v, torch.logsumexp(scores, dim=2)


@pytest.mark.parametrize(("d", "d_v"), [(2, 2), (3, 3), (5, 1)])
def test_systems_are_those_of_the_dense_formula(d: int, d_v: int) -> None:
    g = torch.Generator().manual_seed(d)
    draw = {"dtype": torch.float64, "generator": g}
    q, k, v = torch.randn(7, 4, d, **draw), torch.randn(7, 9, d, **draw), torch.randn(7, 9, d_v, **draw)
    m = torch.rand(7, 9, **draw)
    beta = torch.tensor([0.0, 0.1, 1.0, 9.0, 300.0, 4000.0, 2.0], dtype=torch.float64)
    m[2, 3] = 0.0
    m[3, 1] = 1e-300
    mean, log_z = attend_systems(q, k, v, m, beta)
    expected, expected_log = dense(q, k, v, m, beta)
    assert torch.allclose(mean, expected, rtol=0, atol=1e-12 * float(v.abs().max()) * 10)
    assert torch.allclose(log_z, expected_log, rtol=1e-13, atol=1e-12)


def test_the_only_key_that_counts_may_have_a_tiny_mass() -> None:
    q = torch.tensor([[[1.0, 0.0]]], dtype=torch.float64)
    k = torch.tensor([[[1.0, 0.0], [-1.0, 0.0]]], dtype=torch.float64)
    m = torch.tensor([[1e-250, 1.0]], dtype=torch.float64)
    mean, log_z = attend_systems(q, k, k, m, torch.tensor([1000.0], dtype=torch.float64))
    assert float(mean[0, 0, 0]) == pytest.approx(1.0, abs=1e-15)
    assert float(log_z[0, 0]) == pytest.approx(1000 + np.log(1e-250), rel=1e-14)


def test_single_precision_keeps_its_digits() -> None:
    x = torch.nn.functional.normalize(torch.randn(20, 16, 3, generator=torch.Generator().manual_seed(1)), dim=2)
    m, beta = torch.full((20, 16), 1 / 16), torch.linspace(0, 60, 20)
    mean, log_z = attend_systems(x, x, x, m, beta)
    expected, expected_log = dense(*(a.double() for a in (x, x, x, m, beta)))
    assert mean.dtype == torch.float32
    assert float((mean - expected).abs().max()) < 2e-5
    assert float((log_z - expected_log).abs().max()) < 2e-5


def test_a_kernel_is_compiled_once() -> None:
    assert systems_kernel(2, False) is systems_kernel(2, False)
