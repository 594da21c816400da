from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metastable import sphere
from metastable.audit.closures import CLOSURES, closure_cosines, gaussian_with_sinks, softmax
from metastable.audit.forecasts import HeadTokens, OneStep, attended, gaussian, rematchings
from metastable.audit.text import attention_summary, audit_text, kappas, participation
from metastable.encoders import load
from metastable.errors import InvalidInput
from tiny_encoders import WORDS, configs, random_model, single_head

IDS = [list(range(5, 30)), list(range(40, 20, -1)), [7, 8, 9, 7, 8, 9, 30, 31, 32]]


def test_single_head_is_what_it_says():
    B, A = torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)
    layer = single_head(B, A)
    torch.testing.assert_close(layer.heads[0].B, B)
    torch.testing.assert_close(layer.heads[0].V, A)
    assert float(layer.fields.abs().max()) == 0


def test_uniform_attention_in_closed_form():
    layer = single_head(torch.zeros(3, 3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
    points = sphere.uniform(40, 3, seed=1)
    entropy, sink, _ = attention_summary(layer, points)
    assert float(entropy[0]) == pytest.approx(1.0, abs=1e-12)
    assert float(sink[0]) == pytest.approx(1 / 40, abs=1e-12)
    cosine, _ = OneStep.of(layer).cosines(points)
    assert cosine["uniform"] == pytest.approx(1.0, abs=1e-12)
    assert cosine["gaussian"] == pytest.approx(1.0, abs=1e-12)


def test_entropy_and_sinks_equal_those_of_the_full_matrix(tiny):
    encoder = tiny("bert")
    points = encoder.points(IDS)[0]
    layer = encoder.layers[1]
    p = layer.attention(points[1])
    entropy, sink, _ = attention_summary(layer, points[1])
    expected = -(p * p.log()).sum(dim=(1, 2)) / (len(points[1]) * math.log(len(points[1])))
    torch.testing.assert_close(entropy, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(sink, p.mean(dim=1).max(dim=1).values, rtol=0, atol=1e-12)


def test_blocks_do_not_change_the_result(tiny, monkeypatch):
    from metastable.encoders import layer as module

    encoder = tiny("modernbert")
    layer, points = encoder.layers[1], encoder.points(IDS)[0][1]
    whole = attention_summary(layer, points)
    update = layer.update(points)
    monkeypatch.setattr(module, "BLOCK_ENTRIES", 200)
    for a, b in zip(whole, attention_summary(layer, points), strict=True):
        torch.testing.assert_close(a, b)
    torch.testing.assert_close(update, layer.update(points))


def test_gaussian_tilt_is_the_high_temperature_expansion():
    """m = mu + Sigma B^T x + O(beta^2): the error of the forecast falls fourfold when beta is halved."""
    B = torch.tensor([[1.0, 0.5, 0], [0, 1.0, 0.2], [0.3, 0, 0.8]], dtype=torch.float64)
    points = sphere.von_mises_fisher(300, [0.0, 0, 1], 2.0, seed=3)
    errors = []
    for beta in (0.2, 0.1, 0.05):
        tokens = HeadTokens.of(single_head(beta * B, torch.eye(3, dtype=torch.float64)), points)
        errors.append(float((attended(tokens)[0] - gaussian(tokens.q, tokens.k, tokens.v)).abs().max()))
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)
    assert errors[1] / errors[2] == pytest.approx(4, rel=0.15)


def test_zero_temperature_forecast_wins_where_the_theory_lives():
    """Many tokens on S^2 at kappa = 200 >> d - 1: the zero-temperature limit is the truth to about 1/kappa."""
    layer = single_head(
        200.0 * torch.eye(3, dtype=torch.float64), torch.diag(torch.tensor([2.0, 1.0, 0.5])).double()
    )
    points = sphere.fibonacci(3000)
    cosine, _ = OneStep.of(layer).cosines(points)
    assert cosine["zero_temperature"] > 0.999
    assert cosine["uniform"] < 0.5


def test_kappa_is_the_length_of_b_transpose_x(tiny):
    encoder = tiny("bert")
    layer, points = encoder.layers[1], encoder.points(IDS)[0][1]
    expected = torch.stack([w.B_transpose(points) + g for w, g in zip(layer.heads, layer.fields, strict=True)])
    expected = layer.norm.centre(expected).norm(dim=2)
    torch.testing.assert_close(kappas(layer, points), expected, rtol=1e-9, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 12), st.integers(0, 1000))
def test_rematched_heads_have_no_fixed_point(n, seed):
    for match in rematchings(n, seed):
        assert sorted(match.tolist()) == list(range(n))
        assert not bool((match == torch.arange(n)).any())


def test_one_head_has_no_control():
    layer = single_head(torch.eye(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64))
    _, control = OneStep.of(layer).cosines(sphere.uniform(20, 3, seed=0))
    assert set(control.values()) == {None}


def test_participation_in_closed_form():
    points = torch.cat((torch.eye(5), -torch.eye(5))).double()
    assert participation(points) == pytest.approx(5.0)
    assert participation(points[:1].expand(4, -1)) == 1.0


def test_gaussian_with_sinks_is_exact_when_the_cloud_is_one_point(tiny):
    """Sigma = 0: the cloud is an atom of weight n', and nothing is approximated."""
    layer = tiny("bert").layers[0]
    generator = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(3, 9, 8, generator=generator, dtype=torch.float64) for _ in range(3))
    k[:, 1:-1], v[:, 1:-1] = k[:, 1:2], v[:, 1:2]
    torch.testing.assert_close(gaussian_with_sinks(layer, q, k, v), softmax(layer, q, k, v))


def test_closures_are_cosines_and_softmax_is_one(tiny, monkeypatch):
    encoder = tiny("bert")
    monkeypatch.setitem(CLOSURES, "softmax", softmax)
    found = closure_cosines(encoder, IDS)
    assert all(-1 - 1e-9 <= c <= 1 + 1e-9 for values in found.values() for c in values)
    assert found["softmax"] == pytest.approx([1.0] * 3, abs=1e-6)
    assert max(found["none"]) < 1 - 1e-4


@pytest.mark.parametrize("family", ["bert", "mpnet", "modernbert", "albert"])
def test_text_audit_of_every_shape(tiny, family):
    encoder = tiny(family)
    result = audit_text(encoder, IDS)
    assert result.texts == 3 and result.tokens == sum(map(len, IDS)) and result.cut == 0
    assert len(result.layers) == len(encoder.layers) and result.layers[-1].transport is None
    for layer, step in zip(result.layers, result.forecasts, strict=True):
        assert 0 <= layer.entropy <= 1 and 0 < layer.sink <= 1 and -1 <= layer.mean_cosine <= 1
        assert step.control["uniform"] is None
        assert all(step.control[n] is not None for n in ("gaussian", "argmax", "zero_temperature"))


def test_texts_of_no_one_and_many_tokens(tiny):
    encoder = tiny("bert")
    with pytest.raises(InvalidInput, match="at least one text"):
        audit_text(encoder, [])
    with pytest.raises(InvalidInput, match="all 2 texts are empty"):
        audit_text(encoder, ["", "  "])
    one = audit_text(encoder, [[9]])
    assert one.tokens == 1 and one.layers[0].entropy == 0.0
    long = audit_text(encoder, [[5 + i % 50 for i in range(10_000)]])
    assert long.tokens == 64 and long.cut == 1 and long.limit == 64


def test_texts_without_a_token_of_their_own_are_left_out(tmp_path):
    """Invisible characters: the tokenizer reads nothing but its own special tokens."""
    folder = tmp_path / "tiny"
    random_model(configs()["bert"]).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    encoder = load(folder)
    assert audit_text(encoder, ["\u200b", "b a d e"]).empty == 1
    with pytest.raises(InvalidInput, match=r"the text is empty \(the tokenizer reads no token\)"):
        audit_text(encoder, ["\u200b"])


def test_ten_thousand_vectors_fit_in_memory():
    """A torch encoder has no limit of tokens: attention over 10000 of them is never held as a matrix."""
    from metastable.encoders import load

    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    layer = load(torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False)).layers[1]
    points = sphere.uniform(10_000, 8, seed=0)
    sizes = [tuple(p.shape) for _, p in layer.attention_blocks(points)]
    assert max(math.prod(s) for s in sizes) <= 1 << 22
    assert sum(s[1] for s in sizes) == 10_000
