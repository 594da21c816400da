"""Folders, files and SentenceTransformer folders in the Hugging Face layout."""

from __future__ import annotations

import json

import pytest
import torch

from metastable.encoders import load
from metastable.errors import InvalidInput, StorageError
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


def hub(monkeypatch, cached, fetched):
    """A stand-in for the hub's client: what it finds in the cache, and what it fetches (a path or an exception)."""
    import huggingface_hub

    calls = []

    def download(name, *, allow_patterns, local_files_only=False):
        calls.append("cache" if local_files_only else "network")
        found = cached if local_files_only else fetched
        if isinstance(found, Exception):
            raise found
        return str(found)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return calls


def test_a_cached_model_is_not_fetched(bert_folder, monkeypatch):
    calls = hub(monkeypatch, bert_folder, RuntimeError("no network"))
    assert load("owner/tiny").name == "owner/tiny" and calls == ["cache"]


def test_what_is_not_wholly_in_the_cache_is_fetched(bert_folder, tmp_path, monkeypatch):
    """A cache with a config and no weights, as a look at the config alone leaves it."""
    part = tmp_path / "part"
    part.mkdir()
    (part / "config.json").write_text("{}")
    calls = hub(monkeypatch, part, bert_folder)
    assert load("owner/tiny").d == 24 and calls == ["cache", "network"]


@pytest.mark.parametrize(
    ("cached", "fetched", "sentence", "calls"),
    [
        (PermissionError("denied"), None, "in the local cache but cannot be read: denied", ["cache"]),
        ("missing", OSError("connection refused"), "the hub could not be reached: connection refused", None),
        ("missing", "offline", "the hub is switched off", None),
        ("missing", "unknown", "the hub has no public model of this name", None),
    ],
)
def test_cache_and_network_are_told_apart(cached, fetched, sentence, calls, monkeypatch):
    from huggingface_hub import errors

    unknown = errors.RepositoryNotFoundError
    known = {
        "missing": errors.LocalEntryNotFoundError("not here"),
        "offline": errors.OfflineModeIsEnabled("off"),
        "unknown": unknown.__new__(unknown),
    }
    called = hub(monkeypatch, known.get(cached, cached), known.get(fetched, fetched))
    with pytest.raises(StorageError, match=sentence) as caught:
        load("owner/tiny")
    assert called == (calls or ["cache", "network"]) and len(str(caught.value)) < 200


def test_a_name_that_is_no_id_is_not_looked_up():
    with pytest.raises(InvalidInput, match="no model id such as 'owner/name'"):
        load("what is this?")
