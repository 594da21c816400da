"""What folders hold: the layouts in which encoders are shipped, and true sentences for what cannot be opened."""

from __future__ import annotations

import json

import pytest
import torch

from metastable.encoders import load
from metastable.errors import InvalidInput, StorageError
from tiny_encoders import WORDS, assert_same_weights, configs, random_model

onnx = pytest.importorskip("onnx", reason="the extra 'encoders' is not installed")

from onnx_graph import bert_graph  # noqa: E402  needs onnx

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]


@pytest.fixture(scope="module")
def model():
    return random_model(configs()["bert"], seed=4)


@pytest.fixture
def exported(model, tmp_path):
    """The standard layout: config and tokenizer in the folder, the graph under onnx/."""
    folder = tmp_path / "tiny"
    (folder / "onnx").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(model.config.to_dict()))
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    onnx.save(bert_graph(model), folder / "onnx" / "model.onnx")
    return folder


def refusal(source, **options):
    with pytest.raises((InvalidInput, StorageError)) as caught:
        load(source, **options)
    sentence = str(caught.value)
    assert len(sentence) < 200 and "\n" not in sentence, sentence
    return sentence


def test_the_standard_onnx_layout(exported, model):
    encoder = load(exported)
    assert_same_weights(encoder, load(model))
    assert encoder.name == "tiny" and encoder.tokenizer is not None
    assert encoder.hidden_states(["a b c"])[0].shape == (4, 5, 24)
    by_file = load(exported / "onnx" / "model.onnx")
    assert by_file.tokenizer is not None and by_file.files == encoder.files


def test_the_real_graph_is_preferred_to_a_quantised_one(exported, model):
    (exported / "onnx" / "model_int8.onnx").write_bytes(b"")
    (exported / "onnx" / "a_quantized.onnx").write_bytes(b"")
    assert_same_weights(load(exported), load(model))


def test_a_sentence_transformer_with_only_a_graph(exported, model):
    (exported / "modules.json").write_text(json.dumps(MODULES))
    (exported / "1_Pooling").mkdir()
    (exported / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    (exported / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 7}))
    encoder = load(exported)
    assert_same_weights(encoder, load(model))
    assert encoder.pooling == "cls" and encoder.inputs.max_tokens == 7


def rewritten(exported, op, domain, name):
    """The graph of the folder with one more node, under another name and alone."""
    graph = onnx.load(exported / "onnx" / "model.onnx")
    graph.graph.node.append(onnx.helper.make_node(op, ["input_ids"], ["x"], domain=domain))
    if domain:
        graph.opset_import.append(onnx.helper.make_opsetid(domain, 1))
    (exported / "onnx" / "model.onnx").unlink()
    onnx.save(graph, exported / "onnx" / name)


def test_only_a_quantised_graph(exported):
    rewritten(exported, "MatMulInteger", "", "model_quantized.onnx")
    sentence = refusal(exported)
    assert "no other weights" in sentence and "model_quantized.onnx is quantised (MatMulInteger" in sentence


@pytest.mark.parametrize(
    ("op", "told"), [("Attention", "rewritten by an optimiser"), ("QAttention", "is quantised")]
)
def test_a_graph_of_onnx_runtime(exported, op, told):
    rewritten(exported, op, "com.microsoft", "model_O2.onnx")
    assert told in refusal(exported) and op in refusal(exported)
    assert told in refusal(exported / "onnx" / "model_O2.onnx")


def test_weights_in_a_file_that_is_missing(exported):
    file = exported / "onnx" / "model.onnx"
    onnx.save(onnx.load(file), file, save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    assert load(exported).d == 24
    (exported / "onnx" / "model.onnx_data").unlink()
    assert "keeps its weights in a file beside it" in refusal(exported)


def test_an_old_config_without_a_family(model, tmp_path):
    model.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    del settings["model_type"]
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert "names no model_type" in refusal(tmp_path) and "--family bert" in refusal(tmp_path)
    encoder = load(tmp_path, family="bert")
    assert_same_weights(encoder, load(model))
    assert any("was told, not read" in note for note in encoder.notes)
    assert "unknown family 'elephant'" in refusal(tmp_path, family="elephant")
    (tmp_path / "config.json").write_text(json.dumps({**settings, "architectures": ["RobertaModel"]}))
    assert "--family roberta" in refusal(tmp_path)
    settings["model_type"] = "of-my-own"
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert "unknown model_type 'of-my-own'" in refusal(tmp_path)


@pytest.mark.parametrize("wrap", ["{}", "module.{}", "_orig_mod.module.{}"])
@pytest.mark.parametrize("nested", [False, True])
def test_a_torch_state_with_its_config(model, tmp_path, wrap, nested):
    state = {wrap.format(key): value for key, value in model.state_dict().items()}
    torch.save({"model_state_dict": state, "step": 3} if nested else state, tmp_path / "weights.pt")
    assert "--config" in refusal(tmp_path / "weights.pt")
    (tmp_path / "settings.json").write_text(json.dumps(model.config.to_dict()))
    encoder = load(tmp_path / "weights.pt", config=tmp_path / "settings.json")
    assert_same_weights(encoder, load(model))
    torch.save({}, tmp_path / "optimizer.pt")
    assert_same_weights(load(tmp_path, config=model.config.to_dict()), load(model))


def test_a_torch_file_that_is_no_state(model, tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "whole.pt")
    assert "cannot be read as plain weights" in refusal(tmp_path / "whole.pt", config=model.config.to_dict())
    torch.save({}, tmp_path / "empty.pt")
    assert "holds no dictionary of tensors" in refusal(tmp_path / "empty.pt", config=model.config.to_dict())


def test_folders_that_hold_no_model(tmp_path):
    assert "holds no model" in refusal(tmp_path)
    (tmp_path / "modules.json").write_text(json.dumps(MODULES))
    assert "holds no model" in refusal(tmp_path)
