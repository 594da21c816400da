"""The Sinkhorn divergence: its stated error covers the exact distance and shrinks with the regularisation."""

import pytest

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
