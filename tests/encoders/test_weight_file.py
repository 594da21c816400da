"""Weight files: which are read, how, and sentences about the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from metastable.encoders import load
from metastable.errors import InvalidInput, StorageError
from tiny_encoders import assert_same_weights


def test_torch_file_is_read_weights_only(make, tmp_path):
    model = make("bert")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    assert_same_weights(load(tmp_path), load(model))
    torch.save({"w": Path}, tmp_path / "pytorch_model.bin")
    with pytest.raises(StorageError, match="plain weights"):
        load(tmp_path)


@pytest.mark.parametrize("keep", [0.5, 0.0001])
def test_truncated_weights_are_refused(bert_folder, keep):
    file = bert_folder / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(StorageError, match="truncated"):
        load(bert_folder)


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("model.safetensors", "version https://git-lfs.github.com/spec/v1", "Git LFS pointer"),
        ("model.safetensors.index.json", "{}", "has no weight_map"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "gone.safetensors"}}', "gone.safetensors is not in"),
        ("modules.json", "[{}]", "no list of modules"),
        ("config.json", "{", "not valid JSON"),
    ],
)
def test_files_that_are_not_what_they_are_called(bert_folder, file, content, told):
    (bert_folder / file).write_text(content)
    with pytest.raises(StorageError, match=told):
        load(bert_folder)


def test_a_checkpoint_of_its_own_code(tmp_path):
    torch.save({"model_state_dict": {"w": torch.zeros(2, 2)}, "config": {"n_layer": 4}}, tmp_path / "model.pt")
    with pytest.raises(InvalidInput, match="architecture of its own"):
        load(tmp_path / "model.pt")


def test_weights_inside_a_training_checkpoint(make, tmp_path):
    model = make("bert")
    torch.save({"model_state_dict": model.state_dict(), "step": 3}, tmp_path / "model.pt")
    assert_same_weights(load(tmp_path / "model.pt", config=model.config.to_dict()), load(model))
