"""Configs: read, and refused where they describe no encoder with real weights."""

from __future__ import annotations

import json

import pytest
import torch

from metastable.encoders import load
from metastable.encoders.model_config import is_decoder_family
from metastable.errors import InvalidInput
from tiny_encoders import SIZES, random_model, transformers

safetensors = pytest.importorskip("safetensors.torch", reason="the extra 'encoders' is not installed")


def test_a_config_that_does_not_fit_is_refused(make, bert_folder):
    config = json.loads((bert_folder / "config.json").read_text())
    config["hidden_size"] = 48
    (bert_folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInput, match=r"tensors have another shape, among them .*\(24,\) where \(48,\)"):
        load(bert_folder)
    (bert_folder / "config.json").write_text(json.dumps({**config, "num_attention_heads": "three"}))
    with pytest.raises(InvalidInput, match="is no bert config"):
        load(bert_folder)
    (bert_folder / "config.json").write_text(json.dumps({**config, "num_attention_heads": 0}))
    with pytest.raises(InvalidInput, match="cannot be opened as a bert encoder"):
        load(bert_folder)
    (bert_folder / "config.json").write_text("[1, 2]")
    with pytest.raises(InvalidInput, match=r"a config is a dictionary .* got list"):
        load(bert_folder)


def test_quantisation_config_is_refused(make, bert_folder):
    config = json.loads((bert_folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (bert_folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInput, match="quantised \\(bitsandbytes\\)"):
        load(bert_folder)


def test_decoders_are_refused(tmp_path):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=24, n_layer=2, n_head=3, vocab_size=60))
    model.save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match="causal decoder"):
        load(tmp_path)
    with pytest.raises(InvalidInput, match="a family of causal decoders"):
        load(transformers.GPT2Model(model.config.__class__(n_embd=24, n_layer=2, n_head=3, vocab_size=60)))
    with pytest.raises(InvalidInput, match="causal decoder"):
        load(random_model(transformers.BertConfig(**SIZES, vocab_size=60, is_decoder=True)))


def test_convolutions_are_refused(tmp_path):
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    transformers.ResNetModel(config).save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match=r"attention"):
        load(tmp_path)
    with pytest.raises(InvalidInput, match="neither a Hugging Face model nor"):
        load(torch.nn.Conv2d(3, 3, 3))


def test_unknown_architecture_runs_no_code(tmp_path, make):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "homemade", "auto_map": {"AutoModel": "x.Y"}}))
    safetensors.save_file({"a": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match="unknown model_type 'homemade'"):
        load(tmp_path)


def test_families_of_other_kinds_are_named(tmp_path):
    small = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 40}
    transformers.LlamaModel(transformers.LlamaConfig(**small, vocab_size=60)).save_pretrained(tmp_path / "llama")
    with pytest.raises(InvalidInput, match="attends only to the past"):
        load(tmp_path / "llama")
    vision = {**small, "image_size": 16, "patch_size": 4}
    both = transformers.CLIPConfig(text_config={**small, "vocab_size": 60}, vision_config=vision)
    transformers.CLIPModel(both).save_pretrained(tmp_path / "clip")
    with pytest.raises(InvalidInput, match="joins several models"):
        load(tmp_path / "clip")
    narrow = transformers.MobileBertConfig(**small, vocab_size=60)
    with pytest.raises(InvalidInput, match="does not fit it"):
        load(transformers.MobileBertModel(narrow))


def test_families_of_decoders():
    """Read from tables that transformers keeps for itself (modeling_auto.MODEL_FOR_..._MAPPING_NAMES)."""
    assert is_decoder_family("gpt2") and is_decoder_family("llama")
    assert not is_decoder_family("bert") and not is_decoder_family("vit") and not is_decoder_family("xlnet")
