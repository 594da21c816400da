"""ONNX files: the weights behind the graph's initialisers, put back into a model of their family.

The graph is not trusted to be what its names say: its own attention (the outputs of its Softmax nodes) is computed
with the reference evaluator of onnx and compared with the rebuilt model.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable.encoders.assemble import assemble
from metastable.encoders.capture import forward
from metastable.encoders.huggingface import Opened, inputs_of
from metastable.encoders.model_config import family_was_given, read_config
from metastable.encoders.tokenizer import has_tokenizer, read_tokenizer
from metastable.encoders.transformers_library import library
from metastable.encoders.verification import TOLERANCE
from metastable.errors import InvalidInput, MissingExtra, StorageError

ROOTS = ("embeddings.", "encoder.", "transformer.", "layers.", "embeddings_project.")
"""Where the parameters of a model's own modules begin inside the names of a graph."""
QUANTISED = (
    "MatMulInteger", "DequantizeLinear", "QLinearMatMul", "DynamicQuantizeLinear", "QAttention", "QGemm",
    "DynamicQuantizeMatMul", "MatMulNBits", "MatMulIntegerToFloat", "QEmbedLayerNormalization",
)  # fmt: skip
"""Nodes of a graph whose weights are integers: ONNX's own, and those of ONNX Runtime."""
PROBE_TOKENS = 12
"""Random tokens on which the graph's own attention is compared: the reference evaluator is slow."""


def read_onnx(path: Path, config: Any = None, tokenizer: Any = None, family: str | None = None) -> Opened:
    """Open an ONNX encoder; config (a dict, file or folder) is guessed from the graph when it is not beside it.

    In the usual layout, <model>/onnx/model.onnx, config and tokenizer are one level up.
    """
    library()
    graph_model = read_graph(path)
    state = weights_behind(graph_model, path.name)
    folders = [path.parent, path.absolute().parent.parent][: 1 + (path.absolute().parent.name == "onnx")]
    if config is None:
        config = next((file for folder in folders if (file := folder / "config.json").is_file()), None)
    own, ids = _own_attention(graph_model, state, path.name)
    guesses = [config] if config is not None else _configs(graph_model, state, own[0].shape[0], path.name)
    worst = np.inf
    for guess in guesses:
        settings = read_config(guess, family)
        model, stored, remarks = assemble(settings, state, path.name)
        mask = torch.ones_like(ids)
        output = forward(
            model, {"input_ids": ids, "attention_mask": mask}, output_attentions=True, return_dict=True
        )
        if len(output.attentions) != len(own):
            continue
        gap = max(float((a[0].double() - b).abs().max()) for a, b in zip(output.attentions, own, strict=True))
        worst = min(worst, gap)
        if gap <= TOLERANCE:
            found = read_tokenizer(tokenizer, next(filter(has_tokenizer, folders), None), settings)
            remarks = (*remarks, *family_was_given(settings, family))
            return Opened(model, inputs_of(model, found), "mean", stored, remarks, (path,))
    raise InvalidInput(
        f"{path.name} is refused: the model rebuilt from its weights attends differently from the graph "
        f"(by {worst:.1e}, at most {TOLERANCE:.0e} is accepted)"
    )


def read_graph(path: Path) -> Any:
    """The graph of an ONNX file as an exporter wrote it; a quantised or an optimised one is refused."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtra.of("onnx", "encoders") from error
    try:
        graph_model = onnx.load(path, load_external_data=False)
    except Exception as error:
        raise StorageError(f"{path.name} is truncated or no ONNX file") from error
    nodes = [(node.op_type, node.domain) for node in graph_model.graph.node]
    quantised = next((op for op, _ in nodes if op in QUANTISED), None)
    if quantised is not None:
        raise InvalidInput(f"{path.name} is quantised ({quantised} nodes); an audit needs the real weights")
    own = {"", "ai.onnx", "ai.onnx.ml", *(f.domain for f in graph_model.functions)}
    foreign = next(((op, domain) for op, domain in nodes if domain not in own), None)
    if foreign is not None:
        raise InvalidInput(
            f"{path.name} was rewritten by an optimiser ({foreign[0]} nodes of {foreign[1]}); an audit needs the "
            "graph as it was exported, as a rule model.onnx"
        )
    try:
        onnx.load_external_data_for_model(graph_model, str(path.parent))
    except Exception as error:
        raise StorageError(f"{path.name} keeps its weights in a file beside it, which cannot be read") from error
    try:
        onnx.checker.check_model(str(path))
    except Exception as error:
        reason = " ".join(str(error).split())[:100]
        raise StorageError(f"{path.name} is truncated or no valid ONNX graph: {reason}") from error
    return graph_model


def weights_behind(graph_model: Any, name: str) -> dict[str, Tensor]:
    """Named tensors of the graph; a matrix without a name gets that of the bias that is added after it."""
    from onnx import numpy_helper

    arrays = {i.name: numpy_helper.to_array(i) for i in graph_model.graph.initializer}
    state = {
        key: torch.from_numpy(np.array(a)) for n, a in arrays.items() if (key := _path_in_model(n)) and a.ndim >= 1
    }
    product_of = {
        node.output[0]: next((i for i in node.input if i in arrays), None)
        for node in graph_model.graph.node
        if node.op_type == "MatMul"
    }
    for node in graph_model.graph.node:
        if node.op_type == "Add":
            bias = next((i for i in node.input if i in arrays and _path_in_model(i)), None)
            matrix = next((product_of[i] for i in node.input if product_of.get(i)), None)
            if bias and matrix and bias.endswith(".bias"):
                state[_path_in_model(bias).removesuffix("bias") + "weight"] = torch.from_numpy(
                    np.array(arrays[matrix].T)
                )
        elif node.op_type == "Gemm" and len(node.input) == 3 and _path_in_model(node.input[2]):
            turned = any(a.name == "transB" and a.i for a in node.attribute)
            weight = arrays[node.input[1]]
            state[_path_in_model(node.input[2]).removesuffix("bias") + "weight"] = torch.from_numpy(
                np.array(weight if turned else weight.T)
            )
    return state


def _path_in_model(name: str) -> str:
    """The part of an initialiser's name from the model's root on; empty when it has none."""
    places = [m.start() for root in ROOTS for m in re.finditer(rf"(?:^|\.){re.escape(root)}", name)]
    if not places:
        return ""
    return name[min(places) :].lstrip(".")


def _own_attention(graph_model: Any, state: dict[str, Tensor], name: str) -> tuple[list[Tensor], Tensor]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    probe = onnx.ModelProto()
    probe.CopyFrom(graph_model)
    softmax = [node.output[0] for node in probe.graph.node if node.op_type == "Softmax"]
    if not softmax:
        raise InvalidInput(f"{name} has no Softmax node: its attention is not softmax, or it has none")
    for output in softmax:
        probe.graph.output.append(onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None))
    table = next((t for k, t in state.items() if k.endswith("word_embeddings.weight")), None)
    if table is None:
        raise InvalidInput(f"{name} has no word embeddings: only text encoders are opened from ONNX")
    generator = torch.Generator().manual_seed(7)
    ids = torch.randint(5, table.shape[0], (1, PROBE_TOKENS), generator=generator)
    offers = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    names = [i.name for i in probe.graph.input if i.name not in {t.name for t in probe.graph.initializer}]
    unknown = [n for n in names if n not in offers]
    if unknown:
        raise InvalidInput(f"{name} asks for the input {unknown[0]!r}; known are {', '.join(offers)}")
    try:
        values = ReferenceEvaluator(probe).run(softmax, {n: offers[n].numpy() for n in names})
    except Exception as error:
        raise InvalidInput(f"{name} cannot be evaluated: {str(error).splitlines()[0]}") from error
    maps = [torch.from_numpy(np.asarray(v)).double()[0] for v in values if np.ndim(v) == 4]
    if not maps:
        raise InvalidInput(f"{name} has Softmax nodes, but none over (batch, heads, tokens, tokens)")
    return maps, ids


def _configs(graph_model: Any, state: dict[str, Tensor], n_heads: int, name: str) -> list[dict[str, Any]]:
    """Configs that fit the shapes: BERT and RoBERTa share their names, so both are tried."""
    operations = {node.op_type for node in graph_model.graph.node}
    activation = (
        "gelu" if "Erf" in operations or "Gelu" in operations else "relu" if "Relu" in operations else "gelu_new"
    )
    eps = next(
        (
            a.f
            for n in graph_model.graph.node
            if n.op_type == "LayerNormalization"
            for a in n.attribute
            if a.name == "epsilon"
        ),
        1e-12,
    )
    words = next(t for k, t in state.items() if k.endswith("word_embeddings.weight"))
    places = next((t for k, t in state.items() if k.endswith("position_embeddings.weight")), None)
    kinds = next((t for k, t in state.items() if k.endswith("token_type_embeddings.weight")), None)
    blocks = {int(m.group(1)) for k in state if (m := re.match(r"(?:encoder|transformer)\.layer\.(\d+)\.", k))}
    if places is None or not blocks:
        raise InvalidInput(f"{name} has no layers that an adapter knows; put its config.json beside it")
    shared = {"vocab_size": words.shape[0], "max_position_embeddings": places.shape[0]}
    if "transformer.layer.0.ffn.lin1.bias" in state:
        sizes = {"dim": words.shape[1], "n_layers": len(blocks), "n_heads": n_heads, "activation": activation}
        hidden = state["transformer.layer.0.ffn.lin1.bias"].shape[0]
        return [{"model_type": "distilbert", **shared, **sizes, "hidden_dim": hidden}]
    inner = state.get("encoder.layer.0.intermediate.dense.bias")
    if inner is None:
        raise InvalidInput(f"{name} has no layers that an adapter knows; put its config.json beside it")
    settings = {
        **shared,
        "hidden_size": words.shape[1],
        "num_hidden_layers": len(blocks),
        "num_attention_heads": n_heads,
        "intermediate_size": inner.shape[0],
        "hidden_act": activation,
        "layer_norm_eps": eps,
        "type_vocab_size": 2 if kinds is None else kinds.shape[0],
    }
    return [{"model_type": kind, **settings} for kind in ("bert", "roberta")]
