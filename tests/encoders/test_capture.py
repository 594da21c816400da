"""Listening to a running model, and closures in the place of its softmax."""

from __future__ import annotations

import pytest
import torch

from metastable.encoders import load
from metastable.encoders.capture import forward, recorded, replaced_attention, single
from metastable.errors import InvalidInput
from tiny_encoders import SIZES, items_for, transformers


def test_replacing_attention_by_itself_changes_nothing(make):
    """The closure hook stands in the right place: softmax as closure gives the model's own embedding."""

    def softmax(layer, q, k, v):
        return torch.cat([torch.softmax(l, dim=-1) @ v for _, l in layer.logit_blocks(q, k)], dim=1)

    for family in ("bert", "albert", "mpnet", "modernbert", "dinov2"):
        encoder = load(make(family))
        items = items_for(encoder)
        torch.testing.assert_close(encoder.embed(items, softmax), encoder.embed(items), rtol=0, atol=1e-5)
        uniform = encoder.embed(items, lambda layer, q, k, v: v.mean(dim=1, keepdim=True).expand_as(v))
        assert float((uniform - encoder.embed(items)).abs().max()) > 1e-3


def test_replacing_attention_in_a_torch_encoder():
    torch.manual_seed(5)
    block = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    encoder = load(torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval())
    item = [torch.randn(6, 16)]

    def softmax(layer, q, k, v):
        return torch.softmax(q @ k.transpose(1, 2), dim=-1) @ v

    torch.testing.assert_close(encoder.embed(item, softmax), encoder.embed(item), rtol=0, atol=1e-6)


def test_a_model_that_cannot_run_is_a_sentence(make):
    config = transformers.NystromformerConfig(
        **SIZES, vocab_size=60, max_position_embeddings=64, num_landmarks=8, segment_means_seq_len=64
    )
    with pytest.raises(InvalidInput, match=r"refused: the model cannot be run on an input of shape \(17,\)"):
        load(transformers.NystromformerModel(config))


def test_calls_are_recorded_in_order_and_hooks_are_taken_off():
    """One module called twice, as ALBERT calls its block: both inputs and outputs, and nothing left behind."""
    torch.manual_seed(0)
    module = torch.nn.Linear(4, 4)
    first, second = torch.randn(1, 3, 4), torch.randn(3, 1, 4)
    with recorded([module, module]) as heard:
        forward(module, first)
        forward(module, second)
    torch.testing.assert_close(heard.input(module, 0), first[0])
    torch.testing.assert_close(heard.input(module, 1), second[:, 0])
    torch.testing.assert_close(heard.output(module, 1), single(module(second)).detach())
    with pytest.raises(InvalidInput, match="a Linear was called 2 times where the adapter expects 3 calls"):
        heard.input(module, 2)
    forward(module, first)
    with pytest.raises(InvalidInput, match="was called 2 times"):
        heard.output(module, 2)


def test_a_batch_of_several_texts_is_refused(make):
    """It was read as the first token of every text."""
    several, one = torch.randn(3, 5, 4), torch.randn(1, 5, 4)
    assert single(one, batch_first=True).shape == single(one.transpose(0, 1), batch_first=False).shape == (5, 4)
    for batch, first in ((several, None), (several, True), (torch.randn(3, 1, 4), True), (one, False)):
        with pytest.raises(InvalidInput, match="texts are run one by one"):
            single(batch, first)
    encoder = load(make("bert"))
    with (
        pytest.raises(InvalidInput, match=r"texts are run one by one.* got shape \(2, 4, 24\)"),
        replaced_attention(encoder.sites, lambda layer, q, k, v: v),
    ):
        forward(encoder.model, {"input_ids": torch.arange(8).reshape(2, 4)})
