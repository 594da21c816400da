"""`Encoder`: hidden states, points, notes, and the choice of an adapter."""

from __future__ import annotations

import math

import pytest
import torch

from metastable.encoders import load
from metastable.errors import InvalidInput
from tiny_encoders import configs, items_for, random_model


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "vit", "dinov2", "albert"])
def test_hidden_states_are_those_of_the_model(make, family):
    model = make(family)
    encoder = load(model)
    items = items_for(encoder)
    states = encoder.hidden_states(items)[0]
    with torch.no_grad():
        own = model(**encoder.inputs.prepare(items)[0], output_hidden_states=True).hidden_states
    assert states.dtype == torch.float64
    assert len(states) == len(own)
    for mine, theirs in zip(states[:-1], own[:-1], strict=True):
        torch.testing.assert_close(mine, theirs[0].double(), rtol=0, atol=1e-6)


def test_points_fold_back_into_the_hidden_states(make):
    encoder = load(make("bert"))
    items = items_for(encoder)
    states, points = encoder.hidden_states(items)[0], encoder.points(items)[0]
    for layer in encoder.layers:
        s = points[layer.index]
        x = math.sqrt(layer.d) * layer.norm.gain * s + layer.norm.shift
        torch.testing.assert_close(x, states[layer.index], rtol=0, atol=5e-6)
        torch.testing.assert_close(s.norm(dim=1), torch.ones(len(s), dtype=torch.float64), rtol=0, atol=1e-6)
        assert float(s.sum(dim=1).abs().max()) < 1e-6


def test_notes_say_what_is_not_the_theory(make):
    said = {f: " ".join(load(make(f)).notes) for f in ("bert", "modernbert", "vit", "mpnet", "electra", "albert")}
    assert said["bert"] == ""
    assert "RoPE" in said["modernbert"] and "pre-norm" in said["modernbert"] and "local" in said["modernbert"]
    assert "pre-norm" in said["vit"]
    assert "bias by relative position" in said["mpnet"]
    assert "not normalised" in said["electra"] and "not normalised" in said["albert"]
    assert not load(make("vit")).layers[0].spherical


def test_normalised_queries_are_refused_with_the_reason(make):
    """QK-norm: the logits are no bilinear form of the tokens, so no flow of this package describes them."""

    class NormedQuery(torch.nn.Linear):
        def forward(self, x):
            rows = super().forward(x).unflatten(-1, (3, 8))
            return self.q_norm(rows).flatten(-2)

    model = random_model(configs()["bert"])
    attention = model.encoder.layer[1].attention.self
    normed = NormedQuery(24, 24)
    normed.load_state_dict(attention.query.state_dict())
    normed.q_norm = torch.nn.RMSNorm(8)
    attention.query = normed
    with pytest.raises(InvalidInput, match=r"refused.*'q_norm'.*no bilinear form"):
        load(model)
