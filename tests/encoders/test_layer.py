"""`Layer`: folding, scores, and the layer as a flow of the engine."""

from __future__ import annotations

import math

import pytest
import torch

from metastable.encoders import load
from metastable.errors import InvalidInput
from metastable.solve import solve
from tiny_encoders import items_for


def test_folding_is_the_formula(make):
    """B_h = d Gamma W_Q^T W_K Gamma / sqrt(d_h), g_h = sqrt(d) Gamma W_K^T (W_Q b + b_Q)/sqrt(d_h), and A_h.

    Written out densely here, against the factors of the layer.
    """
    model = make("bert")
    layer = load(model).layers[1]
    attention = model.encoder.layer[1].attention
    norm = model.encoder.layer[0].output.LayerNorm
    gain, shift = torch.diag(norm.weight.detach().double()), norm.bias.detach().double()
    d, dh, h = 24, 8, 2
    rows = slice(h * dh, (h + 1) * dh)
    wq, wk, wv = (getattr(attention.self, n).weight.detach().double()[rows] for n in ("query", "key", "value"))
    wo = attention.output.dense.weight.detach().double()[:, rows]
    bq = attention.self.query.bias.detach().double()[rows]
    B = d * gain @ wq.T @ wk @ gain / math.sqrt(dh)
    g = math.sqrt(d) * gain @ wk.T @ (wq @ shift + bq) / math.sqrt(dh)
    torch.testing.assert_close(layer.heads[h].B, B, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer.fields[h], g, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer.heads[h].V, wo @ wv @ gain, rtol=1e-12, atol=1e-12)


def test_the_flow_is_the_layer(make):
    """s' of the engine equals P_s C sum_h A_h m_h of the model's own attention."""
    encoder = load(make("bert"))
    layer = encoder.layers[2]
    s = encoder.points(items_for(encoder))[0][2]
    s = s / s.norm(dim=1, keepdim=True)
    mass = torch.full((len(s),), 1 / len(s), dtype=torch.float64)
    velocity = layer.flow().velocity(0.0, s, mass)
    update = layer.norm.centre(layer.update(s))
    expected = update - (update * s).sum(dim=1, keepdim=True) * s
    torch.testing.assert_close(velocity, expected, rtol=0, atol=1e-9)
    assert float(velocity.sum(dim=1).abs().max()) < 1e-9


def test_the_engine_runs_on_a_trained_layer(make):
    """Tokens of a text, one layer as a flow, solved like any other: they stay centred and on the sphere."""
    encoder = load(make("bert"))
    start = encoder.points(items_for(encoder))[0][1]
    path = solve(encoder.layers[1].flow(beta_scale=0.5), start, t=0.5, rtol=1e-6, atol=1e-8)
    end = path.points[-1]
    torch.testing.assert_close(end.norm(dim=1), torch.ones(len(end), dtype=torch.float64), rtol=0, atol=1e-12)
    assert float(end.sum(dim=1).abs().max()) < 1e-5
    assert float((end - path.points[0]).norm()) > 1e-2


def test_beta_scale_zero_is_uniform_attention(make):
    layer = load(make("bert")).layers[1]
    s = torch.nn.functional.normalize(torch.randn(9, 24, dtype=torch.float64), dim=1)
    mass = torch.full((9,), 1 / 9, dtype=torch.float64)
    mean = sum(w.apply_V(s.mean(dim=0, keepdim=True)) for w in layer.heads)
    update = layer.norm.centre(mean).expand(9, -1)
    expected = update - (update * s).sum(dim=1, keepdim=True) * s
    torch.testing.assert_close(layer.flow(0.0).velocity(0.0, s, mass), expected, rtol=0, atol=1e-10)


def test_rope_scores_depend_on_the_distance_only(make):
    encoder = load(make("modernbert"))
    layer = encoder.layers[2]
    s = torch.nn.functional.normalize(torch.randn(7, 24, dtype=torch.float64), dim=1)
    q, k = layer.scores(s)
    for i, j in ((0, 0), (1, 4), (6, 2)):
        B = layer.head(1, distance=j - i).B
        assert float(q[1, i] @ k[1, j]) == pytest.approx(float(s[i] @ B @ s[j]), abs=1e-9)
    assert not torch.allclose(layer.head(1, 3).B, layer.head(1, 0).B)


def test_a_step_of_the_flow_is_the_layer(make):
    """Euler with step one: attention, residual connection and norm, to the digit."""
    encoder = load(make("bert"))
    layer = encoder.layers[2]
    s = encoder.points(items_for(encoder))[0][2]
    s = s / s.norm(dim=1, keepdim=True)
    after = s + layer.norm.centre(layer.update(s))
    end = solve(layer.flow(), s, t=1, method="euler", step=1.0).end.points
    torch.testing.assert_close(end, after / after.norm(dim=1, keepdim=True), rtol=0, atol=1e-12)


def test_attention_is_formed_by_blocks(make, monkeypatch):
    layer = load(make("modernbert")).layers[1]
    s = torch.nn.functional.normalize(torch.randn(9, 24, dtype=torch.float64), dim=1)
    whole = layer.attention(s)
    torch.testing.assert_close(whole.sum(dim=2), torch.ones(3, 9, dtype=torch.float64))
    monkeypatch.setattr("metastable.encoders.layer.BLOCK_ENTRIES", 3 * 9 * 2)
    assert [len(range(*rows.indices(9))) for rows, _ in layer.attention_blocks(s)] == [2, 2, 2, 2, 1]
    torch.testing.assert_close(layer.attention(s), whole)


def test_a_flow_refuses_a_scale_that_is_none(make):
    with pytest.raises(InvalidInput, match="beta_scale must be finite and >= 0, got -1"):
        load(make("bert")).layers[0].flow(-1.0)
