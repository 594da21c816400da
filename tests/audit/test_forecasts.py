"""One step forecast from moments: where each forecast is the truth."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metastable import sphere
from metastable.audit.closures import gaussian
from metastable.audit.forecasts import HeadTokens, OneStep, attended, rematchings
from tiny_encoders import single_head


def test_single_head_is_what_it_says():
    B, A = torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)
    layer = single_head(B, A)
    torch.testing.assert_close(layer.heads[0].B, B)
    torch.testing.assert_close(layer.heads[0].V, A)
    assert float(layer.fields.abs().max()) == 0


def test_gaussian_tilt_is_the_high_temperature_expansion():
    """m = mu + Sigma B^T x + O(beta^2): the error of the forecast falls fourfold when beta is halved."""
    B = torch.tensor([[1.0, 0.5, 0], [0, 1.0, 0.2], [0.3, 0, 0.8]], dtype=torch.float64)
    points = sphere.von_mises_fisher(300, [0.0, 0, 1], 2.0, seed=3)
    errors = []
    for beta in (0.2, 0.1, 0.05):
        layer = single_head(beta * B, torch.eye(3, dtype=torch.float64))
        tokens = HeadTokens.of(layer, points)
        errors.append(float((attended(tokens)[0] - gaussian(layer, tokens.q, tokens.k, tokens.v)).abs().max()))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.15)


def test_zero_temperature_forecast_wins_where_the_theory_lives():
    """Many tokens on S^2 at kappa = 200 >> d - 1: the zero-temperature limit is the truth to about 1/kappa."""
    layer = single_head(
        200.0 * torch.eye(3, dtype=torch.float64), torch.diag(torch.tensor([2.0, 1.0, 0.5])).double()
    )
    points = sphere.fibonacci(3000)
    cosine, _ = OneStep.of(layer).cosines(points)
    assert cosine["zero_temperature"] > 0.999
    assert cosine["uniform"] < 0.5


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.integers(0, 1000))
def test_rematched_heads_have_no_fixed_point(n, seed):
    for match in rematchings(n, seed):
        assert sorted(match.tolist()) == list(range(n))
        assert not bool((match == torch.arange(n)).any())


def test_one_head_has_no_control():
    layer = single_head(torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
    _, control = OneStep.of(layer).cosines(sphere.uniform(20, 3, seed=0))
    assert set(control.values()) == {None}


def test_uniform_attention_is_forecast_by_the_mean():
    layer = single_head(torch.zeros(3, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
    cosine, _ = OneStep.of(layer).cosines(sphere.uniform(40, 3, seed=1))
    assert cosine["uniform"] == pytest.approx(1.0, abs=1e-12)
    assert cosine["gaussian"] == pytest.approx(1.0, abs=1e-12)
