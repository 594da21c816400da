"""The comparison with the model itself finds out what is not softmax attention of these weights."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch

from metastable.encoders import adapters, load
from metastable.encoders.verification import TOLERANCE, Verification, compare_with_model
from metastable.errors import InvalidInput
from tiny_encoders import configs, random_model


def test_attention_that_is_not_softmax_is_refused(make):
    """The names fit, the mathematics does not: a sigmoid where softmax should be."""
    module = sys.modules["transformers.models.bert.modeling_bert"]
    model = random_model(configs()["bert"])
    own = module.eager_attention_forward

    def sigmoid_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
        p = torch.sigmoid(query @ key.transpose(2, 3) * (scaling or query.shape[-1] ** -0.5))
        p = p / p.sum(dim=-1, keepdim=True)
        return (p @ value).transpose(1, 2).contiguous(), p

    module.eager_attention_forward = sigmoid_attention
    try:
        with pytest.raises(InvalidInput, match=r"refused: attention rebuilt .* differs"):
            load(model)
    finally:
        module.eager_attention_forward = own


def test_a_wrong_adapter_is_refused(make, monkeypatch):
    """An adapter that takes keys for queries is found out."""
    wrong = replace(adapters.ADAPTERS[0], name="wrong", query="attention.self.value")
    monkeypatch.setattr(adapters, "ADAPTERS", (wrong,))
    with pytest.raises(InvalidInput, match="'wrong' differs"):
        load(make("bert"))
    values = replace(adapters.ADAPTERS[0], name="wrong", query="attention.self.query", value="attention.self.key")
    monkeypatch.setattr(adapters, "ADAPTERS", (values,))
    with pytest.raises(InvalidInput, match="'wrong' differs"):
        load(make("bert"))


def test_both_differences_must_be_small():
    right = Verification(TOLERANCE, TOLERANCE, 0, 17, "float32")
    assert right.holds
    assert not replace(right, attention_error=2 * TOLERANCE).holds
    assert not replace(right, update_error=float("inf")).holds


def test_differences_are_measured_on_all_inputs():
    model = random_model(configs()["bert"])
    model.set_attn_implementation("eager")
    encoder = load(model)
    samples = encoder.inputs.samples()
    seen = compare_with_model(encoder.model, encoder.sites, samples * 2, "float32")
    assert seen.holds and seen.tokens == 2 * encoder.verification.tokens
    assert seen.attention_error == encoder.verification.attention_error
