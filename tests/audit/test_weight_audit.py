from __future__ import annotations

import math

import pytest
import torch

from metastable.audit.heads import audit_weights
from metastable.audit.spectra import Factors, LowRank, Spectrum, angle_between, energy_in


def dense(low: LowRank, h: int) -> torch.Tensor:
    return low.left[h] @ low.right[h]


def close_sets(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest distance of an eigenvalue of `a` to the nearest of `b`, relative to the largest modulus."""
    return float((a[:, None] - b[None]).abs().min(dim=1).values.max() / b.abs().max())


@pytest.mark.parametrize("family", ["bert", "modernbert", "vit", "albert"])
def test_low_rank_numbers_equal_dense_ones(tiny, family):
    for layer in tiny(family).layers[:2]:
        factors = Factors.of(layer)
        centre = layer.norm.centre(torch.eye(layer.d, dtype=torch.float64))
        for h, w in enumerate(layer.heads):
            A, B = centre @ w.V @ centre, centre @ w.B @ centre
            M = A @ B.T
            for low, matrix in ((factors.values, A), (factors.scores, B), (factors.products, M)):
                torch.testing.assert_close(dense(low, h), matrix, rtol=1e-10, atol=1e-10)
                assert close_sets(low.eigenvalues[h], torch.linalg.eigvals(matrix)) < 1e-8
                assert float(low.trace[h]) == pytest.approx(float(matrix.trace()), rel=1e-8, abs=1e-10)
                assert float(low.frobenius[h]) == pytest.approx(float(matrix.norm()), rel=1e-8)
                assert float(low.operator_norm[h]) == pytest.approx(
                    float(torch.linalg.matrix_norm(matrix, 2)), rel=1e-8
                )
                skew = float((matrix - matrix.T).norm() / (2 * matrix.norm()))
                assert float(low.asymmetry[h]) == pytest.approx(skew, rel=1e-8)
                commutator = matrix @ matrix.T - matrix.T @ matrix
                assert float(low.nonnormality[h]) == pytest.approx(
                    float(commutator.norm() / matrix.norm() ** 2), rel=1e-8
                )
            space = factors.products.dominant(h)
            leak = M @ space - space @ (space.T @ M @ space)
            assert float(leak.norm()) < 1e-8 * float(M.norm())
        scale = [math.sqrt(layer.d) / float((centre @ w.B @ centre).norm()) for w in layer.heads]
        M0 = sum(s * centre @ w.V @ centre @ w.B.T @ centre for s, w in zip(scale, layer.heads, strict=True))
        torch.testing.assert_close(factors.sum_products, M0, rtol=1e-9, atol=1e-9)


def test_mismatched_traces_are_traces(tiny):
    factors = Factors.of(tiny("bert").layers[1])
    table = factors.mismatched_traces()
    for h in range(3):
        for g in range(3):
            A, B = dense(factors.values, h), dense(factors.scores, g)
            assert float(table[h, g]) == pytest.approx(float((A @ B.T).trace() / (A.norm() * B.norm())), rel=1e-9)


def test_spectrum_keeps_pairs_together():
    block = torch.tensor([[1.0, -2.0], [2.0, 1.0]], dtype=torch.float64)
    matrix = torch.block_diag(torch.tensor([[3.0]], dtype=torch.float64), block, torch.tensor([[0.5]]).double())
    spectrum = Spectrum.of(matrix, k=2)
    assert spectrum.top == pytest.approx(3.0) and not spectrum.is_complex and spectrum.gap == pytest.approx(2.0)
    assert spectrum.space.shape == (4, 1)  # the pair 1 +- 2i does not fit into two dimensions behind 3
    assert Spectrum.of(matrix, k=3).space.shape == (4, 3)
    turning = Spectrum.of(torch.block_diag(2 * block, torch.tensor([[1.0]]).double()), k=2)
    assert turning.is_complex and turning.gap == pytest.approx(1.0) and turning.space.shape == (3, 2)


def test_energy_and_angle_in_closed_form():
    plane = torch.eye(3, dtype=torch.float64)[:, :2]
    points = torch.tensor([[0.6, 0.0, 0.8], [1.0, 0.0, 0.0]], dtype=torch.float64)
    assert energy_in(plane, points) == pytest.approx((0.36 + 1) / 2)
    tilted = torch.tensor([[0.0], [0.5], [math.sqrt(0.75)]], dtype=torch.float64)
    assert angle_between(plane, tilted) == pytest.approx(60.0)


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


def test_low_rank_equals_dense_on_real_weights(minilm):
    layer = minilm.layers[2]
    factors = Factors.of(layer)
    for h in (0, 7):
        M = dense(factors.products, h)
        assert close_sets(factors.products.eigenvalues[h], torch.linalg.eigvals(M)) < 1e-8
