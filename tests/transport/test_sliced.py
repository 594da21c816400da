"""Sliced distances: exact where slicing changes nothing, below W_p on lines, POT on spheres."""

import numpy as np
import pytest

from metastable import sphere
from metastable.transport import wasserstein
from transport.clouds import cloud


def test_sliced_on_the_circle_is_exact_geodesic_transport() -> None:
    """Every great circle of S^1 is the circle itself, so slicing changes nothing."""
    a, b = cloud(40, 2, "uniform", True, 1), cloud(30, 2, "arc", True, 2)
    found = wasserstein(a, b, metric="geodesic", method="sliced", projections=4)
    assert not found.exact
    assert found == pytest.approx(wasserstein(a, b, metric="geodesic"), abs=1e-12)


def test_sliced_lines_stay_below_and_follow_the_seed() -> None:
    a, b = cloud(60, 4, "uniform", False, 1), cloud(60, 4, "cluster", False, 2)
    one, again, other = (wasserstein(a, b, method="sliced", seed=s) for s in (0, 0, 1))
    assert one == again != other
    assert one < wasserstein(a, b)
    assert abs(one - other) < 6 * one.error


def test_sliced_spheres_agree_with_pot() -> None:
    ot = pytest.importorskip("ot")
    a, b = sphere.uniform(200, 3, seed=4), sphere.von_mises_fisher(150, [0, 0, 1.0], 3.0, seed=5)
    found = wasserstein(a, b, metric="geodesic", method="sliced", projections=800)
    peer = 2 * np.pi * ot.sliced_wasserstein_sphere(a.numpy(), b.numpy(), n_projections=800, seed=1)
    assert abs(found - peer) < 4 * np.sqrt(2) * found.error
