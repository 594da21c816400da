"""`Norm`: tokens on the sphere, exactly as torch's norms compute them."""

from __future__ import annotations

import math

import pytest
import torch

from metastable.encoders import Norm

D = 12


def norms():
    torch.manual_seed(0)
    layer, rms = torch.nn.LayerNorm(D, eps=1e-3), torch.nn.RMSNorm(D, eps=1e-3)
    with torch.no_grad():
        for module in (layer, rms):
            module.weight.add_(0.3 * torch.randn(D))
        layer.bias.add_(torch.randn(D))
    return layer.double(), rms.double()


@pytest.mark.parametrize("which", [0, 1], ids=["LayerNorm", "RMSNorm"])
def test_a_norm_is_sqrt_d_gain_s_plus_shift(which):
    module = norms()[which]
    norm = Norm.of(module, D)
    rows = 3 * torch.randn(7, D, dtype=torch.float64)
    s = norm.points(rows)
    torch.testing.assert_close(math.sqrt(D) * norm.gain * s + norm.shift, module(rows).detach(), rtol=0, atol=1e-12)
    assert norm.spherical and norm.centred == (which == 0) and norm.d_eff == (D - 1 if which == 0 else D)
    assert float(s.norm(dim=1).max()) < 1  # by the norm's eps


def test_a_large_token_lies_on_the_sphere():
    s = Norm.of(norms()[0], D).points(1e6 * torch.randn(7, D, dtype=torch.float64))
    torch.testing.assert_close(s.norm(dim=1), torch.ones(7, dtype=torch.float64))
    assert float(s.sum(dim=1).abs().max()) < 1e-12


@pytest.mark.parametrize("module", [None, torch.nn.Identity()])
def test_without_a_norm_tokens_are_only_scaled(module):
    norm = Norm.of(module, D)
    rows = torch.randn(3, D, dtype=torch.float64)
    assert norm.kind == "none" and not norm.spherical and norm.d == norm.d_eff == D
    torch.testing.assert_close(norm.points(rows), rows / math.sqrt(D))
    torch.testing.assert_close(norm.centre(rows), rows, rtol=0, atol=0)


def test_centring_is_a_projection():
    norm = Norm.of(norms()[0], D)
    rows = torch.randn(2, 5, D, dtype=torch.float64)
    once = norm.centre(rows)
    assert float(once.sum(dim=-1).abs().max()) < 1e-12
    torch.testing.assert_close(norm.centre(once), once, rtol=0, atol=1e-15)
