"""Where numbers come from: the hash of the weights is that of the file."""

from __future__ import annotations

import hashlib

from metastable.audit.corpus import Corpus
from metastable.audit.provenance import provenance, weight_hashes
from metastable.encoders import load
from tiny_encoders import configs, random_model


def test_weights_are_known_by_the_hash_of_their_file(tmp_path):
    random_model(configs()["bert"]).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    expected = hashlib.sha256(file.read_bytes()).hexdigest()
    told = provenance(load(tmp_path), Corpus(["a"], 300, "corpus.txt", "utf-8"), "./tiny")
    assert told["model"] == {"given": "./tiny", "weights": {"model.safetensors": expected}, "pooling": "mean"}
    assert told["input"]["file"] == "corpus.txt" and (told["input"]["used"], told["input"]["given"]) == (1, 300)
    assert {"metastable", "torch", "transformers", "python"} <= set(told["software"]) and told["date"].startswith(
        "20"
    )


def test_weights_in_memory_are_known_by_their_values():
    one, same, other = (load(random_model(configs()["bert"], seed)) for seed in (0, 0, 1))
    assert weight_hashes(one) == weight_hashes(same) != weight_hashes(other)
