"""A model with a part of it changed: what the change does, and that nothing of it stays."""

from __future__ import annotations

import pytest
import torch

from metastable.audit import ablation
from metastable.encoders import load
from tiny_encoders import configs, random_model

IDS = [list(range(5, 30)), list(range(40, 20, -1))]


@pytest.fixture
def encoder():
    return load(random_model(configs()["bert"], seed=3))


@pytest.fixture(params=["bert", "distilbert", "modernbert"])
def any_encoder(request):
    return load(random_model(configs()[request.param], seed=3))


def test_heads_left_out_are_the_closure_without_their_values(any_encoder):
    """Columns of W_O set to zero against a closure whose attended values are zero in the same heads."""
    heads = [(0, 1), (2, 0)]

    def closure(layer, q, k, v):
        means = torch.cat([torch.softmax(l, dim=-1) @ v for _, l in layer.logit_blocks(q, k)], dim=1)
        for l, h in heads:
            if l == layer.index:
                means[h] = 0
        return means

    own = any_encoder.embed(IDS)
    with ablation.without_heads(any_encoder, heads):
        found = any_encoder.embed(IDS)
    torch.testing.assert_close(found, any_encoder.embed(IDS, closure), rtol=0, atol=1e-5)
    assert float((found - own).abs().max()) > 1e-3
    assert torch.equal(any_encoder.embed(IDS), own)


def test_a_skipped_block_hands_on_its_input(any_encoder):
    own = any_encoder.hidden_states(IDS[:1])[0]
    with ablation.without_block(any_encoder, 1):
        found = any_encoder.hidden_states(IDS[:1])[0]
    torch.testing.assert_close(found[2], own[1])
    assert torch.equal(any_encoder.hidden_states(IDS[:1])[0], own)


def test_rounded_matrices_have_few_values_and_come_back(encoder):
    own = encoder.embed(IDS)
    weight = encoder.sites[0].exit.weight.requires_grad_(False)
    before = weight.clone()
    with ablation.replaced_matrices(encoder, [0], ablation.rounded(4)):
        assert all(len(row.unique()) <= 15 for row in weight)
        scale = before.abs().amax(dim=1, keepdim=True) / 7
        assert float(((weight - before).abs() / scale).max()) <= 0.5 + 1e-5
        assert torch.equal(encoder.sites[1].exit.weight, dict(encoder.model.named_parameters())[
            "encoder.layer.1.attention.output.dense.weight"])  # fmt: skip
    assert torch.equal(weight, before) and torch.equal(encoder.embed(IDS), own)


def test_the_control_of_a_change_is_as_large(encoder):
    weight = encoder.sites[0].exit.weight.detach().clone()
    change = ablation.rounded(4)
    random = ablation.as_far(change, 0)(weight)
    assert float((random - weight).norm()) == pytest.approx(float((change(weight) - weight).norm()), rel=1e-4)


def test_a_sink_without_value(encoder):
    """With every value of a text equal, another token's value changes nothing, and zero changes all."""
    own = encoder.embed(IDS)
    every = [(l, h) for l in range(3) for h in range(3)]
    torch.testing.assert_close(encoder.embed(IDS, ablation.sinks_replaced([], False)), own, rtol=0, atol=1e-5)
    zero = encoder.embed(IDS, ablation.sinks_replaced(every, with_other=False))
    other = encoder.embed(IDS, ablation.sinks_replaced(every, with_other=True))
    assert float((zero - own).abs().max()) > 1e-3 and float((other - zero).abs().max()) > 1e-3
    single = [[7]]
    torch.testing.assert_close(
        encoder.embed(single, ablation.sinks_replaced(every, True)), encoder.embed(single), rtol=0, atol=1e-5
    )


def test_shared_blocks_are_known():
    assert ablation.unshared(load(random_model(configs()["bert"])))
    assert not ablation.unshared(load(random_model(configs()["albert"])))
