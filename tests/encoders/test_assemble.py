"""A model from its config and tensors: precision, and tensors that are missing, wrong or too many."""

from __future__ import annotations

import json

import pytest
import torch

from metastable.encoders import load
from metastable.errors import InvalidInput
from tiny_encoders import assert_same_weights, configs, random_model, transformers

safetensors = pytest.importorskip("safetensors.torch", reason="the extra 'encoders' is not installed")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_opened_in_float32(make, tmp_path, dtype):
    model = random_model(configs()["bert"]).to(dtype)
    model.save_pretrained(tmp_path)
    encoder = load(tmp_path)
    assert encoder.stored_dtype == str(dtype).split(".")[-1]
    assert any("stored in" in note for note in encoder.notes)
    assert encoder.verification.holds
    assert_same_weights(encoder, load(model))


def test_int8_weights_are_refused(make, tmp_path):
    model = make("bert")
    model.config.save_pretrained(tmp_path)
    state = {k: v.to(torch.int8) if v.ndim == 2 else v for k, v in model.state_dict().items()}
    safetensors.save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match="int8"):
        load(tmp_path)


def test_a_few_quantised_matrices_are_enough_to_refuse(make, tmp_path):
    """A file whose MLPs alone are int8: cast to float they would make a model that nobody trained."""
    model = make("bert")
    model.config.save_pretrained(tmp_path)
    state = {
        k: v.to(torch.int8) if k.endswith("intermediate.dense.weight") else v for k, v in model.state_dict().items()
    }
    safetensors.save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match="stores its weights as int8"):
        load(tmp_path)


def test_missing_tensors_are_refused_and_not_made_up(make, tmp_path):
    model = make("bert")
    model.config.save_pretrained(tmp_path)
    state = {k: v.contiguous() for k, v in model.state_dict().items() if "layer.1.attention.self.key" not in k}
    safetensors.save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match=r"lacks 2 tensors.*key"):
        load(tmp_path)


def test_weights_that_are_no_numbers_are_named(make, tmp_path):
    model = make("bert")
    model.config.save_pretrained(tmp_path)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    state["encoder.layer.1.output.dense.weight"][3, 4] = float("nan")
    safetensors.save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match=r"NaN or infinity in encoder\.layer\.1\.output\.dense\.weight"):
        load(tmp_path)


def test_the_encoder_of_an_encoder_decoder_is_named(tmp_path):
    config = transformers.T5Config(d_model=24, d_kv=8, num_layers=2, num_heads=3, d_ff=40, vocab_size=60)
    transformers.T5EncoderModel(config).save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match="the encoder of a t5, an encoder-decoder"):
        load(tmp_path)


def test_layers_that_the_config_leaves_out_are_told(bert_folder):
    assert not load(bert_folder).notes
    config = json.loads((bert_folder / "config.json").read_text())
    (bert_folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    encoder = load(bert_folder)
    assert len(encoder.layers) == 2 and "further layers that its config leaves out" in encoder.notes[0]
