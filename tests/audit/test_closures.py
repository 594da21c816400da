"""Every softmax of the network replaced at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from metastable.audit.closures import CLOSURES, closure_cosines, gaussian, mean, softmax, with_sinks
from metastable.encoders.positions import Positions
from tiny_encoders import single_head

IDS = [list(range(5, 30)), list(range(40, 20, -1)), [7, 8, 9, 7, 8, 9, 30, 31, 32]]


def test_gaussian_with_sinks_is_exact_when_the_cloud_is_one_point(tiny):
    """Sigma = 0: the cloud is an atom of weight n', and nothing is approximated."""
    layer = tiny("bert").layers[0]
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(3, 9, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    k[:, 1:-1], v[:, 1:-1] = k[:, 1:2], v[:, 1:2]
    for tilt in (True, False):
        torch.testing.assert_close(with_sinks(layer, q, k, v, tilt=tilt), softmax(layer, q, k, v))


def test_closures_are_cosines_and_softmax_is_one(tiny, monkeypatch):
    encoder = tiny("bert")
    monkeypatch.setitem(CLOSURES, "softmax", softmax)
    found = closure_cosines(encoder, IDS)
    assert all(-1 - 1e-9 <= c <= 1 + 1e-9 for values in found.values() for c in values)
    assert found["softmax"] == pytest.approx([1.0] * 3, abs=1e-6)
    assert max(found["none"]) < 1 - 1e-4


def placed(bias=None, window=None, scale=1.0):
    """A layer of three heads with a bias by position and a window, and rows q, k, v for it."""
    generator = torch.Generator().manual_seed(7)
    B, A = (torch.randn(4, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    layer = replace(single_head(B, A, heads=3), positions=Positions(bias=bias, window=window))
    q, k, v = (torch.randn(3, 9, 4, generator=generator, dtype=torch.float64) for _ in range(3))
    return layer, scale * q, k, v


def distances(n):
    """A bias by distance, another in every head."""
    place = torch.arange(n, dtype=torch.float64)
    return -torch.tensor([0.2, 0.7, 2.0], dtype=torch.float64)[:, None, None] * (place[:, None] - place).abs()


@pytest.mark.parametrize("window", [None, 2, 1])
@pytest.mark.parametrize("bias", [None, distances])
def test_places_are_in_every_closure_alike(bias, window):
    """Scores of zero: attention is what places make of it, and every closure but the argmax must say the same."""
    layer, q, k, v = placed(bias, window, scale=0.0)
    truth = softmax(layer, q, k, v)
    for close in (gaussian, mean, CLOSURES["gaussian_with_sinks"], CLOSURES["mean_with_sinks"]):
        torch.testing.assert_close(close(layer, q, k, v), truth, rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [None, 2])
@pytest.mark.parametrize("bias", [None, distances])
def test_the_tilt_is_the_first_order_in_the_scores(bias, window):
    """softmax = tilt + O(scores^2) with bias and window: the error falls fourfold when the scores are halved."""
    for close in (gaussian, CLOSURES["gaussian_with_sinks"]):
        errors = []
        for scale in (0.04, 0.02, 0.01):
            layer, q, k, v = placed(bias, window, scale)
            errors.append(float((close(layer, q, k, v) - softmax(layer, q, k, v)).abs().max()))
        assert errors[0] / errors[1] == pytest.approx(4, rel=0.1)
        assert errors[1] / errors[2] == pytest.approx(4, rel=0.1)


def test_moments_by_rows_are_moments_at_once():
    """A bias that is the same everywhere changes nothing: both ways to compute the tilt agree."""
    plain, q, k, v = placed()
    flat, *_ = placed(lambda n: torch.full((3, n, n), 0.3, dtype=torch.float64))
    torch.testing.assert_close(gaussian(flat, q, k, v), gaussian(plain, q, k, v))
    torch.testing.assert_close(mean(flat, q, k, v), mean(plain, q, k, v))


def test_matched_heads_bring_their_bias():
    layer, q, k, v = placed(distances)
    match = torch.tensor([1, 2, 0])
    moved = replace(layer, positions=Positions(bias=lambda n: distances(n)[match]))
    torch.testing.assert_close(
        gaussian(layer, q[match], k[match], v, match), gaussian(moved, q[match], k[match], v)
    )
