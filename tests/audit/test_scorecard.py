"""The scorecard: numbers against their definitions, on models that meet some assumptions and miss others."""

from __future__ import annotations

import statistics

import pytest
import torch

from metastable.audit.heads import audit_weights
from metastable.audit.scorecard import COLD, scorecard
from metastable.audit.text import audit_text
from metastable.encoders import load


def rows(encoder, text=None):
    return {row.name: row for row in scorecard(encoder, audit_weights(encoder), text)}


def test_what_a_small_bert_meets(tiny):
    found = rows(tiny("bert"))
    assert found["Tokens live on a sphere"].holds and found["Scores do not see positions"].holds
    assert not found["One head"].holds and found["One head"].measured == 3
    assert not found["B is invertible"].holds and found["B is invertible"].measured == pytest.approx(8 / 24)
    assert not found["Attention only"].holds and found["Attention only"].measured is None


def test_what_others_miss(tiny):
    assert not rows(tiny("vit"))["Tokens live on a sphere"].holds
    assert not rows(tiny("modernbert"))["Scores do not see positions"].holds
    assert not rows(tiny("mpnet"))["Scores do not see positions"].holds


def test_temperature_is_that_of_the_text_where_there_is_one(tiny):
    encoder = tiny("bert")
    text = audit_text(encoder, [list(range(5, 30))])
    expected = statistics.median(layer.kappa_over_dimension for layer in text.layers)
    row = rows(encoder, text)["Low temperature"]
    assert row.measured == expected and row.holds == (expected >= COLD) and row.says.startswith("on ")
    alone = rows(encoder)["Low temperature"]
    assert alone.measured == statistics.median(h.kappa_over_dimension for h in audit_weights(encoder).heads)


def test_symmetric_heads_are_called_symmetric():
    """W_Q = W_K = W_V = W_O^T make A, B and M = A B^T symmetric, and one layer does not change with depth."""
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(6, 1, 8, norm_first=True, batch_first=True)
    module = torch.nn.TransformerEncoder(block, 1, enable_nested_tensor=False)
    attention = module.layers[0].self_attn
    with torch.no_grad():
        projection = torch.linalg.qr(torch.randn(6, 6))[0]
        attention.in_proj_weight.copy_(projection.repeat(3, 1))
        attention.out_proj.weight.copy_(projection.T)
    found = rows(load(module))
    assert found["M = V B^T is symmetric"].holds and found["M = V B^T is symmetric"].measured < 1e-6
    assert found["M is normal"].holds and found["The dominant eigenvalue is real"].holds
    assert found["One head"].holds and found["No field"].holds and found["Weights do not change with depth"].holds
