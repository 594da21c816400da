import pytest
import torch

from metastable import sphere
from metastable.papers.perspective.cross_ratio import chord_ratios, cross_ratios
from small_claims import small_verdict


def test_cross_ratios_do_not_change_under_moebius_maps():
    x = sphere.uniform(8, 3, seed=2)
    pole = torch.tensor([0.3, -0.2, 0.5], dtype=torch.float64)
    # the conformal map of the ball that sends `pole` to the centre, on the sphere
    shifted = x - pole
    moved = (1 - pole @ pole) * shifted / shifted.square().sum(1, keepdim=True) - pole
    assert torch.linalg.vector_norm(moved, dim=1) == pytest.approx(1.0)
    assert cross_ratios(moved[None]) == pytest.approx(cross_ratios(x[None]), rel=1e-12)
    assert chord_ratios(moved[None]) != pytest.approx(chord_ratios(x[None]), rel=1e-2)


def test_the_figure_shows_what_is_conserved_and_what_is_not():
    still, *warm = small_verdict("cross-ratios").figure.series
    assert max(still.y) < 1e-9 < 1e-3 < min(series.y[-1] for series in warm)
