"""The check on the user's own input: what a short sentence does not show."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from metastable.encoders import load
from metastable.encoders import own_input as module
from metastable.encoders.own_input import CHECKED, verify_on
from metastable.encoders.positions import Positions
from metastable.errors import InvalidInput
from tiny_encoders import items_for


@pytest.mark.parametrize("family", ["bert", "modernbert", "mpnet", "vit", "albert"])
def test_every_layer_on_the_longest_items(make, family):
    encoder = load(make(family))
    if encoder.inputs.kind == "image":
        found, longest = verify_on(encoder, items_for(encoder)), 17
    else:
        found = verify_on(
            encoder, [[5 + (k * i) % 50 for i in range(n)] for k, n in enumerate((9, 40, 60, 30, 50, 7))]
        )
        longest = 60
        assert found.items == CHECKED and found.tokens == 60 + 50 + 40 + 30
    assert found.own and found.holds and found.longest == longest and found.layers == len(encoder.layers)
    assert not encoder.verification.own and encoder.verification.layers == len(encoder.layers)


def test_a_window_that_was_missed_shows_on_a_long_text(make):
    """Local attention over 40 tokens looks global to 20 tokens: a sentence passes, a page fails."""
    encoder = load(make("bert"))
    wrong = tuple(
        replace(site, layer=replace(site.layer, positions=Positions(window=40))) for site in encoder.sites
    )
    missed = replace(encoder, sites=wrong)
    assert verify_on(missed, [list(range(5, 25))]).holds
    with pytest.raises(
        InvalidInput, match=r"refused: on the given input, 60 tokens long, .* in layer \d, more than"
    ):
        verify_on(missed, [[5 + i % 50 for i in range(60)]])


def test_too_many_probabilities_are_compared_on_the_beginning(monkeypatch):
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    encoder = load(torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False))
    monkeypatch.setattr(module, "MOST_PROBABILITIES", 4 * 30**2)
    found = verify_on(encoder, [torch.randn(100, 8), torch.randn(10, 8)])
    assert found.longest == 30 and found.tokens == 40 and found.holds


def test_a_model_in_training_is_measured_without_dropout(make):
    model = make("bert")
    model.config._attn_implementation = "sdpa"
    model.train()
    encoder = load(model)
    assert verify_on(encoder, [list(range(5, 25))]).holds and model.training
    once, again = (encoder.hidden_states([list(range(5, 25))])[0] for _ in range(2))
    torch.testing.assert_close(once, again, rtol=0, atol=0)
