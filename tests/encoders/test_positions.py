"""`Positions`: rotations, and what the families' models keep of windows and biases."""

from __future__ import annotations

import pytest
import torch

from metastable.encoders import load
from metastable.encoders.positions import Positions


def test_rope_turns_pairs_by_their_place():
    """In the plane: row n turns by the angle n w, so inner products depend on the distance only."""
    rows = torch.tensor([[[1.0, 0.0]] * 4], dtype=torch.float64)
    turned = Positions(torch.tensor([0.3], dtype=torch.float64)).rotate(rows)[0]
    angle = 0.3 * torch.arange(4, dtype=torch.float64)
    torch.testing.assert_close(turned, torch.stack((angle.cos(), angle.sin()), dim=1))
    torch.testing.assert_close(turned[0] @ turned[2], turned[1] @ turned[3])


def test_without_rope_nothing_turns():
    rows = torch.randn(2, 3, 4)
    assert Positions().rotate(rows) is rows


def test_windows_and_rotations_of_modernbert(make):
    """Every second layer attends globally here, the others to tokens at most 3 places away."""
    layers = load(make("modernbert")).layers
    assert [layer.positions.window for layer in layers] == [None, 3, None]
    assert all(len(layer.positions.frequencies) == 4 for layer in layers)


def test_the_bias_of_mpnet_is_that_of_the_model(make):
    """MPNet computes it by encoder.compute_position_bias, a method of transformers that nobody documents."""
    model = make("mpnet")
    bias = load(model).layers[0].positions.bias(5)
    assert bias.shape == (3, 5, 5) and bias.dtype == torch.float64
    table = model.encoder.relative_attention_bias.weight.detach().double()
    torch.testing.assert_close(bias.diagonal(dim1=1, dim2=2)[:, 0], table[0])
    torch.testing.assert_close(bias[:, 1:, 1:], bias[:, :-1, :-1])


@pytest.mark.parametrize("family", ["bert", "vit"])
def test_families_without_positions_in_their_scores(make, family):
    for layer in load(make(family)).layers:
        assert layer.positions.frequencies is layer.positions.window is layer.positions.bias is None
