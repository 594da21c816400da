"""Folders, files and SentenceTransformer folders in the Hugging Face layout."""

from __future__ import annotations

import json

import pytest
import torch

from metastable.encoders import load
from metastable.errors import InvalidInput
from tiny_encoders import assert_same_weights, configs, transformers

safetensors = pytest.importorskip("safetensors.torch", reason="the extra 'encoders' is not installed")


def test_folder_with_tokenizer(make, bert_folder):
    encoder = load(bert_folder)
    assert_same_weights(encoder, load(make("bert")))
    assert encoder.tokenizer is not None and encoder.name == "tiny-bert"
    states = encoder.hidden_states(["a b c", "a"])
    assert [tuple(s.shape) for s in states] == [(4, 5, 24), (4, 3, 24)]


def test_a_folder_of_a_model_with_a_head(tmp_path):
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(configs()["bert"])
    model.save_pretrained(tmp_path)
    assert_same_weights(load(tmp_path), load(model))


def test_bare_safetensors_with_its_config(make, tmp_path):
    model = make("roberta")
    file = tmp_path / "weights.safetensors"
    safetensors.save_file({k: v.contiguous() for k, v in model.state_dict().items()}, file)
    with pytest.raises(InvalidInput, match=r"needs its config"):
        load(file)
    assert_same_weights(load(file, config=model.config.to_dict()), load(model))
    (tmp_path / "config.json").write_text(json.dumps(model.config.to_dict()))
    assert_same_weights(load(file), load(model))
    assert_same_weights(load(tmp_path), load(model))


def test_sentence_transformer_folder(bert_folder):
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (bert_folder / "modules.json").write_text(json.dumps(modules))
    (bert_folder / "1_Pooling").mkdir()
    modes = {"word_embedding_dimension": 24, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (bert_folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    (bert_folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 7}))
    encoder = load(bert_folder)
    assert encoder.pooling == "cls" and encoder.inputs.max_tokens == 7
    text = "a b c d e f g h i j"
    states = encoder.hidden_states([text])[0]
    assert states.shape[1] == 7
    expected = states[-1][0] / states[-1][0].norm()
    torch.testing.assert_close(encoder.embed([text])[0], expected, rtol=0, atol=1e-6)
    assert encoder.inputs.lengths([text]) == [12]
