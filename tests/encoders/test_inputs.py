"""What a model reads, and sentences about what it cannot."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from metastable.encoders import adapters, load
from metastable.errors import InvalidInput


def test_a_tokenizer_of_another_alphabet_does_not_weaken_the_check(bert_folder, monkeypatch):
    """Sentences of unknown tokens only would let any adapter pass: random tokens are read as well."""
    (bert_folder / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "α", "β"]))
    samples = load(bert_folder).inputs.samples()
    assert len(samples) == 3 and len(set(samples[-1]["input_ids"][0].tolist())) > 8
    wrong = replace(adapters.ADAPTERS[0], query="attention.self.key", key="attention.self.query")
    monkeypatch.setattr(adapters, "ADAPTERS", (wrong,))
    with pytest.raises(InvalidInput, match="differs from the model's own"):
        load(bert_folder)


def test_a_tokenizer_of_another_model_matters_only_for_texts(bert_folder):
    with (bert_folder / "vocab.txt").open("a") as words:
        words.write("\n" + "\n".join(f"word{i}" for i in range(60)) + "\ntide\nboats\nboat")
    encoder = load(bert_folder)
    with pytest.raises(InvalidInput, match=r"outside 0\.\.59, got \d+: is this the model's tokenizer"):
        encoder.hidden_states(["boat"])


def test_a_tokenizer_that_fails_is_a_sentence(bert_folder):
    (bert_folder / "vocab.txt").write_text("")
    with pytest.raises(InvalidInput, match=r"the tokenizer cannot read 'a b': .*UNK"):
        load(bert_folder).hidden_states(["a b"])


def test_a_picture_model_reads_no_text(make):
    with pytest.raises(InvalidInput, match="reads images of shape"):
        load(make("vit")).hidden_states(["a boat"])


def test_texts_that_are_not_texts(bert_folder):
    encoder = load(bert_folder)
    with pytest.raises(InvalidInput, match="at least one text"):
        encoder.hidden_states([])
    with pytest.raises(InvalidInput, match=r"outside 0\.\.59"):
        encoder.hidden_states([[5, 99]])
    with pytest.raises(InvalidInput, match="no tokens"):
        encoder.hidden_states([torch.zeros(0, dtype=torch.long)])
    assert encoder.hidden_states([[5, 6]])[0].shape == (4, 2, 24)
    long = encoder.hidden_states(["a " * 10_000])[0]
    assert long.shape == (4, 64, 24)
    assert encoder.hidden_states([""])[0].shape == (4, 2, 24)  # only the special tokens
