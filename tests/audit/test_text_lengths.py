"""Curves over length: every point is the audit of the texts as if they had been so short."""

from __future__ import annotations

import pytest
import torch

from metastable.audit.text import audit_text
from metastable.audit.text_lengths import TEXTS, length_curve
from metastable.encoders import load

TEXT = [[5 + (i * k) % 50 for i in range(40)] for k in (1, 3, 7)]


def quiet(line):
    pass


def test_a_point_is_the_audit_of_cut_texts(tiny):
    encoder = tiny("bert")
    curve = length_curve(encoder, TEXT, quiet)
    assert [point.tokens for point in curve] == [8, 16, 32] and {point.texts for point in curve} == {3}
    for point in curve:
        short = audit_text(encoder, [text[: point.tokens] for text in TEXT])
        assert point.kappa == [layer.kappa for layer in short.layers]
        assert point.kappa_over_dimension == [layer.kappa_over_dimension for layer in short.layers]
        assert point.entropy == pytest.approx([layer.entropy for layer in short.layers])
        assert point.sink_heads == sum(head.sink >= 0.25 for head in short.heads)


def test_all_points_are_of_the_same_texts(tiny):
    """Texts too short for the longest point are in none of them, so that the curve shows length alone."""
    encoder = tiny("bert")
    curve = length_curve(encoder, [*TEXT, TEXT[0][:12], TEXT[1][:20]], quiet)
    assert [(point.tokens, point.texts) for point in curve] == [(8, 3), (16, 3), (32, 3)]
    assert curve == length_curve(encoder, TEXT, quiet)
    many = length_curve(encoder, [[5 + (i + k) % 50 for i in range(10)] for k in range(20)], quiet)
    assert [(point.tokens, point.texts) for point in many] == [(8, TEXTS)]
    assert length_curve(encoder, [TEXT[0][:5]], quiet) == []


def test_vectors_are_cut_and_images_are_not(tiny):
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    encoder = load(torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False))
    assert [p.tokens for p in length_curve(encoder, [torch.randn(20, 8)], quiet)] == [8, 16]
    picture = torch.randn(tiny("vit").inputs.shape, generator=torch.Generator().manual_seed(0))
    assert length_curve(tiny("vit"), [picture], quiet) == []
