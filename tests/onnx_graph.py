"""A BERT or RoBERTa model written as an ONNX graph by hand, matrices anonymous as exporters leave them."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class _Writer:
    def __init__(self) -> None:
        self.nodes: list = []
        self.tensors: list = []
        self.count = 0

    def tensor(self, array, name: str | None = None) -> str:
        name = name or f"onnx::MatMul_{len(self.tensors)}"
        self.tensors.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, op: str, *inputs: str, **attributes) -> str:
        self.count += 1
        self.nodes.append(helper.make_node(op, list(inputs), [f"v{self.count}"], **attributes))
        return f"v{self.count}"


def bert_graph(model, swap_query_and_key: bool = False):
    """The graph of input_ids -> last hidden state; with `swap_query_and_key` it is not what its names say."""
    state = {k: v.detach().numpy() for k, v in model.state_dict().items()}
    config, w = model.config, _Writer()
    heads, width = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    eps = config.layer_norm_eps

    def linear(x: str, name: str) -> str:
        product = w.node("MatMul", x, w.tensor(state[f"{name}.weight"].T))
        return w.node("Add", product, w.tensor(state[f"{name}.bias"], f"net.{name}.bias"))

    def norm(x: str, name: str) -> str:
        gain, shift = (w.tensor(state[f"{name}.{p}"], f"net.{name}.{p}") for p in ("weight", "bias"))
        return w.node("LayerNormalization", x, gain, shift, axis=-1, epsilon=eps)

    def split(x: str) -> str:
        shape = w.tensor(np.array([0, 0, heads, width]), f"shape{w.count}")
        return w.node("Transpose", w.node("Reshape", x, shape), perm=[0, 2, 1, 3])

    words = w.tensor(state["embeddings.word_embeddings.weight"], "net.embeddings.word_embeddings.weight")
    places = state["embeddings.position_embeddings.weight"]
    kinds = w.tensor(
        state["embeddings.token_type_embeddings.weight"], "net.embeddings.token_type_embeddings.weight"
    )
    table = w.tensor(places, "net.embeddings.position_embeddings.weight")
    first = config.pad_token_id + 1 if config.model_type == "roberta" else 0
    length = w.node("Shape", "input_ids", start=1, end=2)
    scalar = w.node("Squeeze", length, w.tensor(np.array([0]), "axis0"))
    start = w.tensor(np.array(first), "start")
    order = w.node("Range", start, w.node("Add", scalar, start), w.tensor(np.array(1), "one"))
    zero = w.node("Mul", "input_ids", w.tensor(np.array(0), "zero"))
    x = w.node("Add", w.node("Gather", words, "input_ids"), w.node("Gather", kinds, zero))
    x = norm(w.node("Add", x, w.node("Gather", table, order)), "embeddings.LayerNorm")
    for l in range(config.num_hidden_layers):
        at = f"encoder.layer.{l}"
        q, k, v = (split(linear(x, f"{at}.attention.self.{n}")) for n in ("query", "key", "value"))
        if swap_query_and_key:
            q, k = k, q
        scores = w.node("MatMul", q, w.node("Transpose", k, perm=[0, 1, 3, 2]))
        scores = w.node("Div", scores, w.tensor(np.array(math.sqrt(width), dtype=np.float32), f"root{l}"))
        mean = w.node("MatMul", w.node("Softmax", scores, axis=-1), v)
        flat = w.tensor(np.array([0, 0, heads * width]), f"flat{l}")
        mean = w.node("Reshape", w.node("Transpose", mean, perm=[0, 2, 1, 3]), flat)
        x = norm(w.node("Add", linear(mean, f"{at}.attention.output.dense"), x), f"{at}.attention.output.LayerNorm")
        inner = linear(x, f"{at}.intermediate.dense")
        erf = w.node("Erf", w.node("Div", inner, w.tensor(np.array(math.sqrt(2), dtype=np.float32), f"two{l}")))
        half = w.node("Mul", inner, w.tensor(np.array(0.5, dtype=np.float32), f"half{l}"))
        gelu = w.node("Mul", half, w.node("Add", erf, w.tensor(np.array(1, dtype=np.float32), f"unit{l}")))
        x = norm(w.node("Add", linear(gelu, f"{at}.output.dense"), x), f"{at}.output.LayerNorm")
    graph = helper.make_graph(
        w.nodes,
        "encoder",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", "tokens", config.hidden_size])],
        w.tensors,
    )
    return onnx.helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
