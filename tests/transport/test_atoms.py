"""Few atoms: recognised among many rows, exact with split tokens, at sizes out of reach of the linear program."""

import math

import numpy as np
import pytest

from metastable import sphere
from metastable.measure import Measure
from metastable.transport import wasserstein
from metastable.transport.atoms import distinct_atoms


def test_push_forward_onto_a_point_pair_is_two_atoms() -> None:
    """Pi#rho has n rows but two points, which agree only to rounding."""
    rho = Measure(sphere.uniform(5000, 3, seed=1))
    x = rho.points.numpy()
    noise = 1e-15 * np.random.default_rng(0).standard_normal(x.shape)
    image = Measure(np.sign(x[:, :1]) * np.array([[1.0, 0.0, 0.0]]) + noise)
    found = wasserstein(rho, image)
    assert found.method == "atoms" and found.exact
    assert found == pytest.approx(math.sqrt(np.mean(2 * (1 - np.abs(x[:, 0])))), abs=1e-10)


def test_a_tenth_of_a_token_is_split() -> None:
    """Two tokens against masses .55/.45 of two antipodes: .05 of mass travels the diameter."""
    rho = Measure([[1.0, 0.0], [-1.0, 0.0]])
    poles = Measure([[1.0, 0.0], [-1.0, 0.0]], [0.55, 0.45])
    assert wasserstein(rho, poles) == pytest.approx(2 * math.sqrt(0.05), abs=1e-14)
    assert wasserstein(rho, poles, metric="geodesic", p=1) == pytest.approx(0.05 * math.pi, abs=1e-14)


def test_one_flipped_token_costs_two_over_root_n() -> None:
    """N11: of n tokens in two clusters at +-e, one that sits in the wrong cluster costs W2 = 2/sqrt(n)."""
    n = 1000
    points = np.repeat([[1.0, 0.0], [-1.0, 0.0]], n // 2, axis=0)
    flipped = points.copy()
    flipped[0] *= -1
    assert wasserstein(points, flipped) == pytest.approx(2 / math.sqrt(n), abs=1e-12)


def test_tiny_distances_keep_their_digits() -> None:
    """Clusters of width 1e-11 at balanced atoms: no floor from the rounding of the masses."""
    n = 3000
    side = np.where(np.arange(n) % 3 == 0, 1.0, -1.0)
    offset = 1e-11 * np.sin(np.arange(n))
    points = np.stack([side, offset], axis=1)
    found = wasserstein(points, np.stack([side, 0 * side], axis=1))
    assert found == pytest.approx(math.sqrt(np.mean(offset**2)), rel=1e-6)


@pytest.mark.parametrize("n", [300_000, 999_983])
def test_many_copies_of_two_points_are_at_no_distance_from_themselves(n: int) -> None:
    """Every token is a tie and n masses 1/n are summed: no drift of the sums may show."""
    side = np.where(np.arange(n) % 7 < 3, 1.0, -1.0)
    points = side[:, None] * np.array([[0.6, 0.8]])
    assert wasserstein(points, points[::-1].copy()) < 1e-12


def test_fibonacci_sphere_against_octahedron() -> None:
    """The Voronoi cells of the six poles have equal mass: W2^2 = E[2 (1 - max_i |x_i|)]."""
    x = sphere.fibonacci(60_000).numpy()
    poles = np.concatenate([np.eye(3), -np.eye(3)])
    expected = math.sqrt(np.mean(2 * (1 - np.abs(x).max(axis=1))))
    assert wasserstein(x, poles) == pytest.approx(expected, abs=1e-6)


def test_distinct_atoms_stop_early_and_merge() -> None:
    mass = np.full(4, 0.25)
    points = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 5e-13], [1.0, 1e-9]])
    found = distinct_atoms(points, mass, 3)
    assert found is not None
    assert found[0].shape == (3, 2) and found[1].tolist() == [0.5, 0.25, 0.25]
    assert distinct_atoms(points, mass, 2) is None
