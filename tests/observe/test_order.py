"""Order of tokens: closed forms and definitions written out."""

import math

import numpy as np
import pytest
import torch

import metastable as ms
from fuzz.runs import CASES
from metastable import observe
from metastable.errors import InvalidInput


def test_order_parameter_and_effective_rank():
    assert observe.order_parameter([[1.0, 0.0], [-1.0, 0.0]]) == 0.0
    assert observe.order_parameter(ms.Measure([[1.0, 0.0], [-1.0, 0.0]], mass=[3, 1])) == 0.5
    assert observe.effective_rank([[1.0, 0.0, 0.0]] * 5) == pytest.approx(1.0)
    assert observe.effective_rank(torch.eye(4)) == pytest.approx(4.0)


def test_distance_to_subspace_keeps_its_digits():
    points = ms.sphere.from_angles([1e-9, math.pi - 2e-9])
    squared = observe.squared_distance_to_subspace(points, [[1.0], [0.0]])
    assert squared == pytest.approx((1e-18 + 4e-18) / 2, rel=1e-6)
    assert observe.distance_to_subspace(points, [[1.0], [0.0]]) == pytest.approx(squared**0.5, rel=1e-14)
    x = ms.sphere.uniform(50, 4, seed=3)
    basis = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    projector = basis @ torch.linalg.inv(basis.T @ basis) @ basis.T
    expected = float((2 * (1 - (x @ projector).norm(dim=1))).mean())
    for scale in (1.0, 1e-200, 1e200):
        assert observe.squared_distance_to_subspace(x, scale * basis) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_distance_to_subspace_is_the_wasserstein_distance_to_the_projected_tokens(seed):
    g = torch.Generator().manual_seed(seed)
    mass = torch.rand(12, generator=g).double() + 0.1
    rho = ms.Measure(ms.sphere.uniform(12, 4, seed=g), mass / mass.sum())
    basis = torch.randn(4, 1 + seed % 3, dtype=torch.float64, generator=g)
    onto = basis @ torch.linalg.pinv(basis)
    nearest = ms.Measure(rho.points @ onto, rho.mass)
    assert observe.distance_to_subspace(rho, basis) == pytest.approx(float(ms.wasserstein(rho, nearest)), rel=1e-9)


def test_overlap_histogram_counts_pairs():
    x = ms.sphere.uniform(300, 3, seed=4)
    probability, edges = observe.overlap_histogram(x, bins=20)
    overlaps = (x @ x.T)[~torch.eye(300, dtype=torch.bool)].numpy()
    expected, _ = np.histogram(overlaps, bins=edges.numpy())
    assert np.abs(probability.numpy() - expected / expected.sum()).max() < 1e-12
    heavy = ms.Measure([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], mass=[1, 1, 2])
    probability, _ = observe.overlap_histogram(heavy, bins=2)
    assert probability.tolist() == pytest.approx([0.8, 0.2])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: observe.distance_to_subspace(x, [[1.0]]), r"shape \(2, k\)"),
        (lambda x: observe.distance_to_subspace(x, [[1.0, 2.0], [1.0, 2.0]]), "linearly independent"),
        (lambda x: observe.overlap_histogram(x, bins=0), "bins must be >= 1"),
        (lambda x: observe.overlap_histogram(x, bins=2.5), "bins must be an integer"),
        (lambda x: observe.overlap_histogram(x[:1]), "two tokens"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(InvalidInput, match=match):
        call(ms.sphere.uniform(5, 2))


@pytest.mark.parametrize("seed", range(1000, 1020))
def test_random_cases(seed):
    assert CASES["distance_to_subspace"](seed) is None
