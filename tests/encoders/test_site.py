"""`Site`: the modules at which a running model is listened to are those of its layer."""

from __future__ import annotations

import torch

from metastable.encoders import load


def test_sites_point_into_the_model(make):
    model = make("bert")
    for l, site in enumerate(load(model).sites):
        block = model.encoder.layer[l]
        assert site.block is block and site.layer.index == l and not site.one_module
        assert (
            site.entry is block.attention.self.query
            and site.exit is site.update_module is block.attention.output.dense
        )
        assert (site.block_call, site.norm_call) == (0, 0)


def test_a_shared_block_is_told_apart_by_its_calls(make):
    assert [site.block_call for site in load(make("albert")).sites] == [0, 1, 2]
    assert [site.block_call for site in load(make("albert-groups")).sites] == [0, 1, 0, 1]


def test_a_layer_scale_emits_what_is_added(make):
    site = load(make("dinov2")).sites[0]
    assert site.update_module is not site.exit and site.update_module is site.block.layer_scale1


def test_the_attention_of_torch_is_one_module():
    block = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    site = load(torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False)).sites[1]
    assert site.one_module and site.entry is site.exit is site.block.self_attn
