"""The fused passes agree with the plain expressions to rounding."""

import math

import pytest
import torch

from metastable import rowwise

N = 4096


def plain(function, *arguments, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(rowwise, "fusible", lambda *tensors: False)
        return function(*arguments)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("d", [2, 5])
def test_fused_equals_plain(d, dtype, monkeypatch):
    g = torch.Generator().manual_seed(d)
    x = torch.nn.functional.normalize(torch.randn(N, d, generator=g, dtype=dtype), dim=1)
    stages = torch.randn(4, N, d, generator=g, dtype=dtype)
    weights = torch.randn(4, generator=g, dtype=torch.float64)
    matrix = torch.randn(d, 3, generator=g, dtype=dtype)
    mass = torch.rand(N, generator=g, dtype=dtype) / N
    assert rowwise.fusible(x, stages)
    tolerance = 50 * torch.finfo(dtype).eps
    for function, arguments in (
        (rowwise.apply, (x, matrix)),
        (rowwise.normalize, (stages[0],)),
        (rowwise.inner, (x, stages[1])),
        (rowwise.project_tangent, (x, stages[1])),
        (rowwise.project_back, (x, *stages[1:])),
        (rowwise.project_applied, (x, stages[2, :, :2].contiguous(), matrix[:2, :1].expand(2, d).contiguous())),
        (rowwise.project_applied, (x, stages[2], None)),
        (rowwise.combine, (x, stages, weights, True)),
        (rowwise.combine, (x, stages, weights, False)),
    ):
        expected = plain(function, *arguments, monkeypatch=monkeypatch)
        assert (function(*arguments) - expected).abs().max() <= tolerance * expected.abs().max()
    for function, arguments in (
        (rowwise.largest_tangential, (x, stages, weights)),
        (rowwise.largest_damped, (x, stages, torch.stack([weights, 10 * weights.flip(0)]), 0.01)),
        (rowwise.mean_spread, (0.7 * x, mass)),
    ):
        expected = plain(function, *arguments, monkeypatch=monkeypatch)
        assert function(*arguments) == pytest.approx(expected, rel=100 * tolerance)


def test_a_value_that_is_not_finite_is_an_infinite_error(monkeypatch):
    x = torch.zeros(N, 2, dtype=torch.float64)
    x[:, 0] = 1.0
    stages = torch.ones(2, N, 2, dtype=torch.float64)
    stages[1, 7, 1] = math.nan
    weights = torch.ones(2, dtype=torch.float64)
    assert rowwise.largest_tangential(x, stages, weights) == math.inf
    assert plain(rowwise.largest_tangential, x, stages, weights, monkeypatch=monkeypatch) == math.inf
    both = torch.ones(2, 2, dtype=torch.float64)
    assert rowwise.largest_damped(x, stages, both, 0.01) == math.inf
    assert plain(rowwise.largest_damped, x, stages, both, 0.01, monkeypatch=monkeypatch) == math.inf


def test_no_error_is_none(monkeypatch):
    x, stages = torch.eye(2, dtype=torch.float64).repeat(N // 2, 1), torch.zeros(2, N, 2, dtype=torch.float64)
    both = torch.ones(2, 2, dtype=torch.float64)
    assert rowwise.largest_damped(x, stages, both, 0.01) == 0.0
    assert plain(rowwise.largest_damped, x, stages, both, 0.01, monkeypatch=monkeypatch) == 0.0
