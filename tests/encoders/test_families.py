from __future__ import annotations

import math

import pytest
import torch

from metastable.encoders import load
from metastable.solve import solve
from tiny_encoders import configs

FAMILIES = sorted(configs())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_rebuilt(make, family):
    encoder = load(make(family))
    assert encoder.verification.holds
    assert encoder.verification.attention_error < 1e-5
    assert encoder.verification.update_error < 1e-5
    assert len(encoder.layers) == make(family).config.num_hidden_layers
    assert all(len(layer.heads) == 3 for layer in encoder.layers)
    # Attention must be far from uniform, or the check above would say little.
    points = encoder.points(_items(encoder))[0]
    attention = encoder.layers[-1].attention(points[-1])
    assert float(attention.max()) > 2 / attention.shape[-1]


def _items(encoder):
    kind = encoder.inputs.kind
    if kind == "image":
        return [torch.randn(encoder.inputs.shape, generator=torch.Generator().manual_seed(1))]
    return [list(range(5, 25))]


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "vit", "dinov2", "albert"])
def test_hidden_states_are_those_of_the_model(make, family):
    model = make(family)
    encoder = load(model)
    items = _items(encoder)
    states = encoder.hidden_states(items)[0]
    with torch.no_grad():
        own = model(**encoder.inputs.prepare(items)[0], output_hidden_states=True).hidden_states
    assert states.dtype == torch.float64
    assert len(states) == len(own)
    for mine, theirs in zip(states[:-1], own[:-1], strict=True):
        torch.testing.assert_close(mine, theirs[0].double(), rtol=0, atol=1e-6)


def test_points_fold_back_into_the_hidden_states(make):
    encoder = load(make("bert"))
    items = _items(encoder)
    states, points = encoder.hidden_states(items)[0], encoder.points(items)[0]
    for layer in encoder.layers:
        s = points[layer.index]
        x = math.sqrt(layer.d) * layer.norm.gain * s + layer.norm.shift
        torch.testing.assert_close(x, states[layer.index], rtol=0, atol=5e-6)
        torch.testing.assert_close(s.norm(dim=1), torch.ones(len(s), dtype=torch.float64), rtol=0, atol=1e-6)
        assert float(s.sum(dim=1).abs().max()) < 1e-6


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
    s = encoder.points(_items(encoder))[0][2]
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
    start = encoder.points(_items(encoder))[0][1]
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


def test_notes_say_what_is_not_the_theory(make):
    said = {f: " ".join(load(make(f)).notes) for f in ("bert", "modernbert", "vit", "mpnet", "electra", "albert")}
    assert said["bert"] == ""
    assert "RoPE" in said["modernbert"] and "pre-norm" in said["modernbert"] and "local" in said["modernbert"]
    assert "pre-norm" in said["vit"]
    assert "bias by relative position" in said["mpnet"]
    assert "not normalised" in said["electra"] and "not normalised" in said["albert"]
    assert not load(make("vit")).layers[0].spherical


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_torch_transformer_encoder(norm_first, batch_first):
    torch.manual_seed(3)
    block = torch.nn.TransformerEncoderLayer(16, 4, 32, norm_first=norm_first, batch_first=batch_first)
    module = torch.nn.TransformerEncoder(block, 3, enable_nested_tensor=False)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    encoder = load(module)
    assert encoder.verification.holds and module.training
    assert encoder.layers[0].norm.spherical is norm_first
    states = encoder.hidden_states([torch.randn(6, 16)])[0]
    assert states.shape == (4, 6, 16)


def test_replacing_attention_by_itself_changes_nothing(make):
    """The closure hook stands in the right place: softmax as closure gives the model's own embedding."""

    def softmax(layer, q, k, v):
        return torch.cat([torch.softmax(l, dim=-1) @ v for _, l in layer.logit_blocks(q, k)], dim=1)

    for family in ("bert", "albert", "mpnet", "modernbert", "dinov2"):
        encoder = load(make(family))
        items = _items(encoder)
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
