import copy

import pytest
import torch

from metastable.errors import InvalidInput
from metastable.monitor.identity import Identity, encoder_inside, precision, tokenizer_digest
from tiny_encoders import configs, random_model, transformers


def test_a_copy_is_the_same_model_and_a_changed_weight_another(bert) -> None:
    own = Identity.of(bert)
    other = copy.deepcopy(bert)
    own.refuse(Identity.of(other))
    with torch.no_grad():
        next(other.encoder.layer[1].parameters())[0] += 1e-6
    with pytest.raises(InvalidInput, match="belongs to weights"):
        own.refuse(Identity.of(other))


def test_the_pooler_is_no_matter(bert) -> None:
    other = copy.deepcopy(bert)
    with torch.no_grad():
        other.pooler.dense.weight += 1.0
    Identity.of(bert).refuse(Identity.of(other))


def test_another_precision_is_named(bert) -> None:
    half = copy.deepcopy(bert).half()
    assert precision(half) == "float16"
    with pytest.raises(InvalidInput, match="made in float32, this model computes in float16"):
        Identity.of(bert).refuse(Identity.of(half))


def test_a_quantised_model_is_named(bert) -> None:
    quantised = copy.deepcopy(bert)
    quantised.config.quantization_config = {"bits": 8}
    assert precision(quantised) == "quantised"
    with pytest.raises(InvalidInput, match="computes in quantised"):
        Identity.of(bert).refuse(Identity.of(quantised))


def test_a_tokenizer_is_known_by_what_it_does(tmp_path) -> None:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
    made = []
    for name, vocabulary in (("one", words), ("same", words), ("other", words + ["c"])):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "vocab.txt").write_text("\n".join(vocabulary))
        made.append(transformers.BertTokenizerFast.from_pretrained(folder))
    made[1]("a b a b", truncation=True, max_length=3, padding="max_length")
    one, same, other = map(tokenizer_digest, made)
    assert one == same != other and tokenizer_digest(None) == "none"
    with pytest.raises(InvalidInput, match="belongs to tokenizer"):
        Identity("w", "float32", one).refuse(Identity("w", "float32", other))
    Identity("w", "float32", one).refuse(Identity("w", "float32", "none"))


def test_the_encoder_inside_a_model_with_a_head(bert) -> None:
    headed = transformers.BertForSequenceClassification(configs()["bert"])
    assert encoder_inside(headed)[0] is headed.bert
    assert encoder_inside(bert)[0] is bert


def test_the_encoder_inside_a_sentence_transformer() -> None:
    class Inner(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.auto_model = random_model(configs()["bert"])
            self.tokenizer = "its tokenizer"

    outer = torch.nn.Sequential(Inner(), torch.nn.Identity())
    model, tokenizer = encoder_inside(outer)
    assert model is outer[0].auto_model and tokenizer == "its tokenizer"


@pytest.mark.parametrize("thing", [None, "model", 3, torch.nn.Linear(2, 2), object()])
def test_what_is_no_encoder_is_refused(thing) -> None:
    with pytest.raises(InvalidInput, match="a monitor listens to"):
        encoder_inside(thing)
