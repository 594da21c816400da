"""The Sinkhorn divergence: its stated error covers the exact distance and shrinks with the regularisation."""

import pytest

from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.transport import wasserstein
from transport.clouds import cloud


@pytest.mark.parametrize("metric", ["chordal", "geodesic"])
@pytest.mark.parametrize("p", [1, 2])
def test_sinkhorn_error_covers_and_shrinks(metric: str, p: int) -> None:
    a, b = cloud(60, 3, "uniform", True, 1), cloud(50, 3, "antipodal", True, 2)
    exact = wasserstein(a, b, p, metric)
    coarse, fine = (wasserstein(a, b, p, metric, method="sinkhorn", regularisation=eps) for eps in (0.2, 0.02))
    assert not fine.exact
    assert abs(fine - exact) <= fine.error < 0.1
    assert abs(fine - exact) < abs(coarse - exact) / 2
    assert wasserstein(a, a, p, metric, method="sinkhorn") == pytest.approx(0, abs=1e-3)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("eps", [0.003, 0.3])
def test_stated_error_is_a_bound(seed: int, eps: float) -> None:
    """Few tokens with unequal masses, where the divergence is far from converged or from W_p."""
    p, metric = 1 + seed % 2, ("chordal", "geodesic")[seed // 2 % 2]
    a, b = (
        cloud(3 + seed, 2 + seed % 3, "antipodal", True, seed),
        cloud(5, 2 + seed % 3, "uniform", True, seed + 99),
    )
    found = wasserstein(a, b, p, metric, method="sinkhorn", regularisation=eps)
    assert abs(found - wasserstein(a, b, p, metric)) <= found.error + 1e-9


def test_regularisation_has_a_range() -> None:
    for eps in (1e-9, 1e9):
        with pytest.raises(InvalidInput, match="regularisation must be"):
            wasserstein([[1.0, 0.0]], [[0.0, 1.0]], method="sinkhorn", regularisation=eps)


def test_euclidean_tokens_of_any_size() -> None:
    """W and the regularisation scale with the units of length."""
    a, b = ([[0.0], [1.0], [3.0]], [[0.5], [2.0], [7.0]])
    one = wasserstein(Measure(a, sphere=False), Measure(b, sphere=False), method="sinkhorn", regularisation=0.5)
    far = [Measure([[1000 * x] for (x,) in rows], sphere=False) for rows in (a, b)]
    assert wasserstein(*far, method="sinkhorn", regularisation=5e5) == pytest.approx(1000 * one, rel=1e-12)
