"""`Adapter`: what is found under its names, and sentences about attention that it cannot describe."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from metastable.encoders.adapter import find_module, linear
from metastable.encoders.adapters import ADAPTERS, candidates, families
from metastable.errors import InvalidInput
from tiny_encoders import configs, random_model

BERT = next(adapter for adapter in ADAPTERS if adapter.name == "bert")


def test_modules_are_found_by_path(make):
    model = make("bert")
    assert find_module(model, "encoder.layer.1.attention.self.query") is model.encoder.layer[1].attention.self.query
    assert find_module(model, "encoder.stairs") is None
    assert find_module(model, "config.hidden_size") is None


def test_a_linear_map_is_read_in_float64():
    module = torch.nn.Linear(3, 2, bias=False)
    weight, bias = linear(module)
    assert weight.dtype == bias.dtype == torch.float64 and bias.tolist() == [0.0, 0.0]
    torch.testing.assert_close(weight, module.weight.detach().double(), rtol=0, atol=0)
    with pytest.raises(InvalidInput, match="a projection must be a linear map with floating weights, got Conv1d"):
        linear(torch.nn.Conv1d(2, 2, 3))


def test_the_adapter_of_the_family_comes_first(make):
    model = make("roberta")
    assert candidates(model, "roberta")[0].name == "roberta" and candidates(model, "bert")[0].name == "bert"
    assert BERT not in candidates(make("vit"), "bert")
    assert {"bert", "esm", "vit", "modernbert"} <= set(families())


def test_a_fused_projection_is_three_in_one(make):
    """Wqkv of ModernBERT: queries, keys and values are thirds of one matrix."""
    adapter = next(a for a in ADAPTERS if a.name == "modernbert")
    model = make("modernbert")
    raw = adapter.sites(model, 3)[0].layer.raw
    weight = model.layers[0].attn.Wqkv.weight.detach().double()
    torch.testing.assert_close(torch.cat((raw.query, raw.key, raw.value)), weight, rtol=0, atol=0)


def test_heads_that_do_not_divide_the_queries_are_refused(make):
    with pytest.raises(InvalidInput, match="24 rows of queries cannot be split into 7 heads"):
        BERT.sites(make("bert"), 7)


def test_grouped_queries_are_refused():
    model = random_model(configs()["bert"])
    model.encoder.layer[0].attention.self.key = torch.nn.Linear(24, 8)
    with pytest.raises(InvalidInput, match=r"keys must be as many as queries, got 8 and 24 rows \(grouped-query"):
        BERT.sites(model, 3)


def test_a_norm_of_another_width_is_refused(make):
    model = random_model(configs()["electra"])
    with pytest.raises(InvalidInput, match="the norm of layer 0 has 16 entries, its queries read 24"):
        replace(BERT, separated_by=None).sites(model, 3)
