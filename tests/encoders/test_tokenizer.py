"""Tokenizers beside the weights matter only when a text is read."""

from __future__ import annotations

import pytest

from metastable.encoders import load
from metastable.errors import InvalidInput, StorageError


def test_an_unreadable_tokenizer_matters_only_for_texts(make, bert_folder):
    (bert_folder / "vocab.txt").unlink()
    (bert_folder / "tokenizer.json").write_text("{")
    encoder = load(bert_folder)
    assert encoder.hidden_states([[5, 6]])[0].shape == (4, 2, 24)
    with pytest.raises(InvalidInput, match="the tokenizer of tiny-bert cannot be read"):
        encoder.hidden_states(["a b"])
    with pytest.raises(StorageError, match="cannot be read"):
        load(bert_folder, tokenizer=bert_folder)


def test_a_bare_vocabulary_keeps_its_capitals(make, tmp_path):
    make("bert").save_pretrained(tmp_path / "model")
    words = tmp_path / "words"
    words.mkdir()
    (words / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"ACDEFGHIKLMN"]))
    encoder = load(tmp_path / "model", tokenizer=words)
    assert encoder.tokenizer("A C K")["input_ids"] == [2, 5, 6, 13, 3]
    assert encoder.inputs.unknown(["A C", "a c"]) == pytest.approx(0.5)
