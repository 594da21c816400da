from __future__ import annotations

import pytest

from tiny_encoders import WORDS, configs, random_model


@pytest.fixture(scope="session")
def make():
    cache = {}

    def build(name: str):
        if name not in cache:
            cache[name] = random_model(configs()[name])
        return cache[name]

    return build


@pytest.fixture
def bert_folder(make, tmp_path):
    """A folder with config.json, model.safetensors and a vocabulary."""
    folder = tmp_path / "tiny-bert"
    make("bert").save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    return folder
