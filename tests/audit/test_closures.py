"""Every softmax of the network replaced at once."""

from __future__ import annotations

import pytest
import torch

from metastable.audit.closures import CLOSURES, closure_cosines, gaussian_with_sinks, softmax

IDS = [list(range(5, 30)), list(range(40, 20, -1)), [7, 8, 9, 7, 8, 9, 30, 31, 32]]


def test_gaussian_with_sinks_is_exact_when_the_cloud_is_one_point(tiny):
    """Sigma = 0: the cloud is an atom of weight n', and nothing is approximated."""
    layer = tiny("bert").layers[0]
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(3, 9, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    k[:, 1:-1], v[:, 1:-1] = k[:, 1:2], v[:, 1:2]
    torch.testing.assert_close(gaussian_with_sinks(layer, q, k, v), softmax(layer, q, k, v))


def test_closures_are_cosines_and_softmax_is_one(tiny, monkeypatch):
    encoder = tiny("bert")
    monkeypatch.setitem(CLOSURES, "softmax", softmax)
    found = closure_cosines(encoder, IDS)
    assert all(-1 - 1e-9 <= c <= 1 + 1e-9 for values in found.values() for c in values)
    assert found["softmax"] == pytest.approx([1.0] * 3, abs=1e-6)
    assert max(found["none"]) < 1 - 1e-4
