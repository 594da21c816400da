import math
from dataclasses import replace

import pytest
import torch

from metastable.audit.forecasts import OneStep
from metastable.encoders import Norm, load
from metastable.monitor.glance import QUERIES, Glance, glances
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
        look = Glance.of(layer, torch.device("cpu"))
        x = s.float()
        number = torch.arange(n - 1)[None]
        mask = torch.ones(1, n - 1, dtype=torch.bool)
        found, _ = look.look(x[None, 1:], x[None, 0], mask, number, 1)
        entropy = torch.special.entr(true).sum(dim=2).mean(dim=1) / math.log(n)
        expected = torch.cat((entropy, true[:, :, 0].mean(dim=1)))
        torch.testing.assert_close(found[0].double(), expected, atol=2e-4, rtol=1e-3)


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
    look = Glance.of(layer, torch.device("cpu"))
    mask = torch.ones(1, n - 1, dtype=torch.bool)
    _, found = look.look(x[None, 1:], x[None, 0], mask, torch.arange(n - 1)[None], 1)
    heads = len(layer.heads)
    torch.testing.assert_close(found[0, :heads].double(), expected, atol=2e-4, rtol=1e-3)
    length = true.square().sum(dim=2).sqrt().log().mean(dim=1)
    torch.testing.assert_close(found[0, heads:].double(), length, atol=2e-4, rtol=1e-3)
    assert OneStep.of(layer).cosines(s)[0]["gaussian"] > 0  # the forecast whose name it carries


def test_a_text_of_few_tokens_is_no_error(opened) -> None:
    layer = opened("bert").layers[1]
    x = opened("bert").points([list(range(5, 12))])[0][1].float()
    mask = torch.tensor([[True, False, False, False, False, False]] * 2)
    mask[1] = True
    number = torch.arange(6).expand(2, 6)
    both = Glance.of(layer, torch.device("cpu")).look(
        x[None, 1:].expand(2, -1, -1), x[:1].expand(2, -1), mask, number, 1
    )
    assert all(torch.isfinite(part).all() and not part[0].any() and part[1].all() for part in both)
    alone = Glance.of(layer, torch.device("cpu")).look(x[None, 1:2], x[:1], mask[:1, :1], number[:1, :1], 1)
    assert not any(part.any() for part in alone)


def test_the_middle_layer_is_looked_at_or_none(opened) -> None:
    layers = opened("bert").layers
    assert [g.place for g in glances(layers, torch.device("cpu"))] == [1]
    bare = replace(layers[1], norm=Norm.of(None, layers[1].d))
    assert [g.place for g in glances([layers[0], bare, layers[2]], torch.device("cpu"))] == [2]
    assert glances([bare, bare, bare], torch.device("cpu")) == ()
