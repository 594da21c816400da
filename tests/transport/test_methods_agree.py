"""Every exact method against the network simplex, every approximation against the exact value, metric axioms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from metastable import sphere
from metastable.measure import Measure
from metastable.transport import bounds, wasserstein
from transport.clouds import cloud, clouds

METRIC = st.sampled_from(["chordal", "geodesic"])
P = st.sampled_from([1, 2, 3])


@settings(max_examples=150, deadline=None)
@given(clouds(), METRIC, P)
def test_auto_is_the_linear_program(pair: tuple[Measure, Measure], metric: str, p: int) -> None:
    a, b = pair
    found = wasserstein(a, b, p, metric)
    reference = wasserstein(a, b, p, metric, method="exact")
    assert found.exact and found.error == 0
    # W^p is accurate to rounding; its root amplifies that near zero.
    assert found**p == pytest.approx(reference**p, abs=1e-12 * 4**p, rel=1e-10)


@settings(max_examples=60, deadline=None)
@given(clouds(), METRIC, P)
def test_bounds_enclose(pair: tuple[Measure, Measure], metric: str, p: int) -> None:
    a, b = pair
    lower, upper = bounds(a, b, p, metric)
    exact = wasserstein(a, b, p, metric)
    slack = 1e-7 if exact < 1e-3 else 1e-12
    assert lower - slack <= exact <= upper + slack


@settings(max_examples=60, deadline=None)
@given(clouds(), METRIC)
def test_symmetric_and_chordal_below_geodesic(pair: tuple[Measure, Measure], metric: str) -> None:
    a, b = pair
    assert wasserstein(a, b, metric=metric) ** 2 == pytest.approx(wasserstein(b, a, metric=metric) ** 2, abs=1e-12)
    assert wasserstein(a, b) <= wasserstein(a, b, metric="geodesic") + 1e-7
    assert wasserstein(a, b, p=1, metric=metric) <= wasserstein(a, b, p=2, metric=metric) + 1e-7


@settings(max_examples=30, deadline=None)
@given(clouds(), METRIC)
def test_distance_to_itself_vanishes(pair: tuple[Measure, Measure], metric: str) -> None:
    a, _ = pair
    shuffled = np.random.default_rng(0).permutation(a.n)
    again = Measure(a.points[shuffled], a.mass[shuffled])
    assert wasserstein(a, again, metric=metric) ** 2 < 1e-13


@pytest.mark.parametrize("d", [2, 3, 6])
def test_rotation_invariance(d: int) -> None:
    a, b = cloud(40, d, "uniform", True, 1), cloud(30, d, "cluster", True, 2)
    q, _ = np.linalg.qr(np.random.default_rng(3).standard_normal((d, d)))
    turned = wasserstein(Measure(a.points.numpy() @ q, a.mass), Measure(b.points.numpy() @ q, b.mass))
    assert turned == pytest.approx(wasserstein(a, b), abs=1e-12)


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


def test_euclidean_tokens() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((30, 1)), rng.standard_normal((20, 1)) + 1
    a, b = Measure(x, sphere=False), Measure(y, sphere=False)
    found = wasserstein(a, b)
    assert found.method == "line" and found == pytest.approx(wasserstein(a, b, method="exact"), abs=1e-12)
    plane = wasserstein(
        Measure(rng.standard_normal((20, 2)), sphere=False), Measure(np.ones((20, 2)), sphere=False)
    )
    assert plane.method == "atoms"
