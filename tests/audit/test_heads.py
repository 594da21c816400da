from __future__ import annotations

import math

import pytest
import torch

from metastable.audit.heads import audit_weights


def test_audit_of_small_models_of_every_shape(tiny):
    for family in ("bert", "electra", "mpnet", "modernbert", "dinov2"):
        encoder = tiny(family)
        result = audit_weights(encoder)
        assert len(result.layers) == len(encoder.layers) and len(result.heads) == 3 * len(encoder.layers)
        for head in result.heads:
            assert head.kappa_max >= head.kappa > 0
            assert 0 <= head.asymmetry <= 1 and 0 <= head.nonnormality <= math.sqrt(2)
            assert 1 - 1e-9 <= head.stable_rank_scores <= 8 + 1e-9
            assert 0 <= head.angle <= 90 and 0 <= head.trace_rank <= 1
        shared = torch.tensor(result.shared_directions)
        torch.testing.assert_close(shared, shared.T)
        assert float(shared.diagonal().min()) == pytest.approx(1.0)


def test_marks_on_real_weights(minilm):
    """Largest real parts of sum A and of M0 in the six layers of all-MiniLM-L6-v2."""
    layers = audit_weights(minilm).layers
    sums = [layer.top_sum_values.real for layer in layers]
    products = [layer.top_sum_products.real for layer in layers]
    assert sums == pytest.approx([0.76, 0.66, 0.92, 0.80, 0.76, 0.95], rel=0.02)
    assert products == pytest.approx([1.22, 3.93, 6.45, 0.82, 0.96, 0.78], rel=0.02)
    assert layers[1].product_is_complex and layers[2].product_is_complex
