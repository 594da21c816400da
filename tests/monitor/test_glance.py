import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from metastable.audit.forecasts import OneStep
from metastable.encoders import Norm, load
from metastable.monitor.glance import KEYS, QUERIES, Glance, glances
from tiny_encoders import configs, random_model


@pytest.fixture(scope="module")
def opened():
    cache = {}

    def get(family: str):
        if family not in cache:
            cache[family] = load(random_model(configs()[family]), name=family)
        return cache[family]

    return get


@pytest.mark.parametrize("family", ["bert", "esm", "mpnet", "modernbert", "eurobert"])
def test_attention_of_all_queries_is_the_models_own(opened, family: str) -> None:
    """Entropy and sink of the inner queries are those of the layer's whole attention."""
    if family not in configs():
        pytest.skip("this family came with transformers 5")
    encoder = opened(family)
    n = QUERIES + 3
    points = encoder.points([list(range(5, 5 + n))])[0]
    for layer in encoder.layers[1:]:
        s = points[layer.index]
        true = layer.attention(s)[:, 2:-1]
        look = Glance.of(layer)
        x = s.float()
        number = torch.arange(n - 1)[None]
        found, _ = look.look(x[None, 1:], x[None, 0], np.array([n - 1]), number, 1)
        entropy = torch.special.entr(true).sum(dim=2).mean(dim=1) / math.log(n)
        expected = torch.cat((entropy, true[:, :, 0].mean(dim=1)))
        np.testing.assert_allclose(found[0], expected, atol=2e-4, rtol=1e-3)


def test_the_forecast_is_that_of_the_audit(opened) -> None:
    """mu + Sigma (B^T s + g): the first order of softmax, head by head, through the audit's own sums."""
    layer = opened("bert").layers[1]
    n = QUERIES + 3
    s = opened("bert").points([list(range(5, 5 + n))])[0][1]
    query, key = layer.queries_keys
    mu = s.mean(dim=0)
    sigma = (s - mu).T @ (s - mu) / len(s)
    tilt = torch.einsum("qd,hrd,hre->hqe", s[2:-1], query, key) + layer.fields[:, None]
    forecast = tilt @ sigma
    true = layer.attention(s)[:, 2:-1] @ s - mu
    expected = torch.nn.functional.cosine_similarity(true, forecast, dim=2).mean(dim=1)
    x = s.float()
    look = Glance.of(layer)
    _, found = look.look(x[None, 1:], x[None, 0], np.array([n - 1]), torch.arange(n - 1)[None], 1)
    heads = len(layer.heads)
    np.testing.assert_allclose(found[0, :heads], expected, atol=2e-4, rtol=1e-3)
    length = true.square().sum(dim=2).sqrt().log().mean(dim=1)
    np.testing.assert_allclose(found[0, heads:], length, atol=2e-4, rtol=1e-3)
    assert OneStep.of(layer).cosines(s)[0]["gaussian"] > 0  # the forecast whose name it carries


def test_a_text_of_few_tokens_is_no_error(opened) -> None:
    layer = opened("bert").layers[1]
    x = opened("bert").points([list(range(5, 12))])[0][1].float()
    number = torch.arange(6).expand(2, 6)
    two = (x[None, 1:].expand(2, -1, -1), x[:1].expand(2, -1))
    both = Glance.of(layer).look(*two, np.array([1, 6]), number, 1)
    assert all(np.isfinite(part).all() and not part[0].any() and part[1].all() for part in both)
    alone = Glance.of(layer).look(x[None, 1:2], x[:1], np.array([1]), number[:1, :1], 1)
    assert not any(part.any() for part in alone)


def test_of_a_long_text_the_first_token_and_an_even_selection_are_attended_to(opened) -> None:
    """Beside a shorter text, with a bias of positions and without."""
    for family in ("bert", "mpnet"):
        layer = opened(family).layers[1]
        rows = [opened(family).points([[5 + i % 40 for i in range(n)]])[0][1].float() for n in (41, 9)]
        points = torch.nn.utils.rnn.pad_sequence([row[1:] for row in rows], batch_first=True)
        first = torch.stack([row[0] for row in rows])
        number = torch.arange(40).expand(2, 40)
        found = Glance.of(layer).look(points, first, np.array([40, 8]), number, 1)
        for b, n in enumerate((40, 8)):
            pick = np.floor(np.linspace(0, n - 1, min(n, KEYS)) + 0.5).astype(int)
            alone = Glance.of(layer).look(
                points[b : b + 1, pick], first[b : b + 1], np.array([len(pick)]), number[:1, pick], 1
            )
            for one, other in zip(found, alone, strict=True):
                np.testing.assert_allclose(one[b], other[0], atol=2e-5)


def test_the_middle_layer_is_looked_at_or_none(opened) -> None:
    layers = opened("bert").layers
    assert [g.place for g in glances(layers)] == [1]
    bare = replace(layers[1], norm=Norm.of(None, layers[1].d))
    assert [g.place for g in glances([layers[0], bare, layers[2]])] == [2]
    assert glances([bare, bare, bare]) == ()
