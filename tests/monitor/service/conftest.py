"""A service of a small model that reads words."""

from __future__ import annotations

import pytest

from metastable.encoders import load
from metastable.monitor import Monitor
from tiny_encoders import WORDS, configs, random_model
from walks import sentences


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A folder with config.json, model.safetensors and a vocabulary."""
    place = tmp_path_factory.mktemp("models") / "tiny-bert"
    random_model(configs()["bert"]).save_pretrained(place)
    (place / "vocab.txt").write_text("\n".join(WORDS))
    return place


@pytest.fixture(scope="session")
def reader(folder):
    """A monitor that reads words."""
    return Monitor.calibrate(load(folder), sentences(300, 0))
