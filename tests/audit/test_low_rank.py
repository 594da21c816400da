from __future__ import annotations

import pytest
import torch

from metastable.audit.factors import Factors
from metastable.audit.low_rank import LowRank


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
            space = factors.products.top_space(h)
            leak = M @ space - space @ (space.T @ M @ space)
            assert float(leak.norm()) < 1e-8 * float(M.norm())


def test_low_rank_equals_dense_on_real_weights(minilm):
    layer = minilm.layers[2]
    factors = Factors.of(layer)
    for h in (0, 7):
        M = dense(factors.products, h)
        assert close_sets(factors.products.eigenvalues[h], torch.linalg.eigvals(M)) < 1e-8
