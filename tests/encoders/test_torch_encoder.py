"""torch's own nn.TransformerEncoder."""

from __future__ import annotations

import pytest
import torch

from metastable.encoders import load
from metastable.errors import InvalidInput


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_torch_transformer_encoder(norm_first, batch_first):
    torch.manual_seed(3)
    block = torch.nn.TransformerEncoderLayer(16, 4, 32, norm_first=norm_first, batch_first=batch_first)
    module = torch.nn.TransformerEncoder(block, 3, enable_nested_tensor=False)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    encoder = load(module)
    assert encoder.verification.holds and module.training
    assert encoder.layers[0].norm.spherical is norm_first
    states = encoder.hidden_states([torch.randn(6, 16)])[0]
    assert states.shape == (4, 6, 16)


def test_attention_that_no_adapter_describes_is_refused():
    block = torch.nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    module = torch.nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
    module.layers[1].self_attn = torch.nn.MultiheadAttention(16, 4, add_zero_attn=True, batch_first=True)
    with pytest.raises(InvalidInput, match="layer 1 uses kdim/vdim, add_bias_kv or add_zero_attn"):
        load(module)
