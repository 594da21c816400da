"""Every family in the table, rebuilt from a small random model of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metastable.encoders import adapters, load
from tiny_encoders import configs, items_for

FAMILIES = sorted(configs())


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_rebuilt(make, family):
    encoder = load(make(family))
    assert encoder.verification.holds
    assert encoder.verification.attention_error < 1e-5
    assert encoder.verification.update_error < 1e-5
    assert len(encoder.layers) == make(family).config.num_hidden_layers
    assert all(len(layer.heads) == 3 for layer in encoder.layers)
    # Attention must be far from uniform, or the check above would say little.
    points = encoder.points(items_for(encoder))[0]
    attention = encoder.layers[-1].attention(points[-1])
    assert float(attention.max()) > 2 / attention.shape[-1]


def test_a_family_nobody_listed_is_tried_by_structure(make, monkeypatch):
    table = tuple(replace(a, families=()) for a in adapters.ADAPTERS)
    monkeypatch.setattr(adapters, "ADAPTERS", table)
    for family in ("bert", "mpnet", "modernbert", "vit"):
        assert load(make(family)).verification.holds
