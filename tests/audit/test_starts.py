"""From where layers are iterated: numbers of tokens, texts that are too short, seeds."""

from __future__ import annotations

from collections import Counter

import torch

from metastable.audit.starts import STARTS, TEXT_STARTS, random_tokens, spread, starts_of, text_starts


def test_tokens_of_a_text_are_spread_over_it():
    points = torch.arange(1.0, 12.0, dtype=torch.float64)[:, None] * torch.ones(11, 4, dtype=torch.float64)
    points[:, 0] = torch.arange(11)
    chosen = spread(points, 3)
    expected = points[[0, 5, 10]]
    torch.testing.assert_close(chosen, expected / expected.norm(dim=1, keepdim=True))
    assert len(spread(points, 50)) == 11


def test_random_tokens_are_centred_and_seeded(tiny):
    layer = tiny("bert").layers[0]
    points = random_tokens(layer, 7, seed=3)
    torch.testing.assert_close(points, random_tokens(layer, 7, seed=3))
    assert float(points.sum(dim=1).abs().max()) < 1e-12
    torch.testing.assert_close(points.norm(dim=1), torch.ones(7, dtype=torch.float64))


def test_texts_of_fewer_than_sixteen_tokens_are_no_start(tiny):
    """Three tokens made all layers of a model end where the weights say."""
    encoder = tiny("bert")
    assert text_starts(encoder, [[5, 6, 7], list(range(5, 20))]) == []
    found = text_starts(encoder, [list(range(5, 5 + n)) for n in (16, 40, 50, 15, 20, 30)])
    assert [points.shape[:2] for points in found] == [(3, 16), (3, 32), (3, 32), (3, 16), (3, 16)]


def test_every_layer_has_as_many_starts_of_several_sizes(tiny):
    encoder = tiny("bert")
    texts = text_starts(encoder, [[5 + (i * k) % 50 for i in range(64)] for k in range(1, 21)])
    assert len(texts) == TEXT_STARTS
    for given, expected in ((texts, TEXT_STARTS), (texts[:3], 3), ([], 0)):
        starts = starts_of(encoder.layers[1], given, "text", seed=5)
        assert len(starts) == STARTS and sum(start.kind == "text" for start in starts) == expected
        assert min(Counter(len(start.points) for start in starts).values()) >= 7
    drawn = [start.points[0] for start in starts if len(start.points) == 16]
    assert float(abs(drawn[0] @ drawn[1])) < 0.99  # no start twice
