"""Entropies, sinks, kappa and filled directions of one text, in closed form and from the full matrix."""

from __future__ import annotations

import math

import pytest
import torch

from metastable import sphere
from metastable.audit.on_tokens import attention_summary, kappas, participation
from metastable.encoders import load
from tiny_encoders import single_head

IDS = [list(range(5, 30))]


def test_uniform_attention_in_closed_form():
    layer = single_head(torch.zeros(3, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
    points = sphere.uniform(40, 3, seed=1)
    entropy, sink, _ = attention_summary(layer, points)
    assert float(entropy[0]) == pytest.approx(1.0, abs=1e-12)
    assert float(sink[0]) == pytest.approx(1 / 40, abs=1e-12)


def test_entropy_and_sinks_equal_those_of_the_full_matrix(tiny):
    encoder = tiny("bert")
    points = encoder.points(IDS)[0]
    layer = encoder.layers[1]
    p = layer.attention(points[1])
    entropy, sink, _ = attention_summary(layer, points[1])
    expected = -(p * p.log()).sum(dim=(1, 2)) / (len(points[1]) * math.log(len(points[1])))
    torch.testing.assert_close(entropy, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(sink, p.mean(dim=1).max(dim=1).values, rtol=0, atol=1e-12)


def test_blocks_do_not_change_the_result(tiny, monkeypatch):
    from metastable.encoders import layer as module

    encoder = tiny("modernbert")
    layer, points = encoder.layers[1], encoder.points(IDS)[0][1]
    whole = attention_summary(layer, points)
    update = layer.update(points)
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 200)
    for a, b in zip(whole, attention_summary(layer, points), strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(update, layer.update(points))


def test_kappa_is_the_length_of_b_transpose_x(tiny):
    encoder = tiny("bert")
    layer, points = encoder.layers[1], encoder.points(IDS)[0][1]
    expected = torch.stack([w.B_transpose(points) + g for w, g in zip(layer.heads, layer.fields, strict=True)])
    expected = layer.norm.centre(expected).norm(dim=2)
    torch.testing.assert_close(kappas(layer, points), expected, rtol=1e-9, atol=1e-9)


def test_participation_in_closed_form():
    points = torch.cat((torch.eye(5), -torch.eye(5))).double()
    assert participation(points) == pytest.approx(5.0)
    assert participation(points[:1].expand(4, -1)) == 1.0


def test_ten_thousand_vectors_fit_in_memory():
    """A torch encoder has no limit of tokens: attention over 10000 of them is never held as a matrix."""
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    layer = load(torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False)).layers[1]
    points = sphere.uniform(10_000, 8, seed=0)
    sizes = [tuple(p.shape) for _, p in layer.attention_blocks(points)]
    assert max(math.prod(s) for s in sizes) <= 1 << 22
    assert sum(s[1] for s in sizes) == 10_000
