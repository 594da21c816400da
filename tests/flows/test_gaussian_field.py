"""Gaussian fields: their covariance, merged tokens, one realisation at several places, threads."""

import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows.covariance import Covariance, as_covariance
from metastable.flows.gaussian_field import (
    MOST_FEATURES,
    Features,
    Gram,
    Independent,
    RandomLayer,
    contracted,
    exact_field,
    overlaps,
    rooted,
)


def NONE():
    """No normals."""
    raise AssertionError("nothing is to be drawn")


def as_matrix(field, x, d):
    """The linear map from the normals of one coordinate to the field at the tokens."""
    count = field.size(len(x), d)[0]
    columns = []
    for k in range(count):
        driving = torch.zeros(1, count, d, dtype=torch.float64)
        driving[0, k] = 1.0
        columns.append(field.at([x[None]], driving, NONE, 1.0)[0][0, :, 0])
    return torch.stack(columns, dim=1)


@pytest.mark.parametrize("kappa", ["linear", "constant", "relu", "tanh", (0.3, 0.0, 1.0, 0.5)])
def test_the_covariance_is_kappa_of_the_overlaps(kappa):
    covariance, x = as_covariance(kappa), ms.sphere.uniform(7, 3, seed=1)
    root = as_matrix(exact_field(covariance, 3), x, 3)
    expected = torch.from_numpy(covariance(x @ x.T))
    assert torch.allclose(root @ root.T, expected, atol=1e-13)


def test_polynomials_have_features_as_long_as_these_are_few():
    assert isinstance(exact_field(as_covariance([0.0, 0.0, 1.0]), 8), Features)
    large = as_covariance([0.0, 0.0, 0.0, 0.0, 1.0])
    assert Features(large.coefficients).count(10) > MOST_FEATURES and isinstance(exact_field(large, 10), Gram)


def test_merged_tokens_have_one_noise():
    x = ms.sphere.uniform(3, 4, seed=2)
    twice = torch.cat([x, x, x])[None]
    field = Gram(Covariance.of_activation("relu"))
    driving = torch.randn(1, 9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = field.at([twice], driving, NONE, 1.0)[0][0]
    assert torch.allclose(found[:3], found[3:6], atol=1e-7) and torch.allclose(found[:3], found[6:], atol=1e-7)
    assert torch.equal(found[:3], field.at([twice[:, :3]], driving[:, :3], NONE, 1.0)[0][0])


def test_the_field_at_further_places_is_one_realisation():
    """At the same places it is the same; the joint covariance over many samples is that of all places."""
    field, x = Gram(Covariance.of_activation("relu")), ms.sphere.uniform(4, 2, seed=3)
    many = 20_000
    generator = torch.Generator().manual_seed(2)
    duration = 0.04
    driving, fresh = (torch.randn(many, 2, 2, dtype=torch.float64, generator=generator) for _ in range(2))
    places = [x[:2].expand(many, 2, 2).contiguous(), x[2:].expand(many, 2, 2).contiguous()]
    first, second = field.at(places, math.sqrt(duration) * driving, lambda: fresh, duration)
    assert torch.equal(first, field.at(places[:1], math.sqrt(duration) * driving, lambda: fresh, duration)[0])
    drawn = torch.cat([first, second], dim=1)[:, :, 0]
    expected = duration * field.covariance((x @ x.T).numpy())
    spread = math.sqrt(2 / many) * duration / 2
    assert np.abs((drawn.T @ drawn / many).numpy() - expected).max() < 5 * spread
    again = field.at([places[0], places[0]], math.sqrt(duration) * driving, lambda: fresh, duration)
    assert torch.allclose(again[0], again[1], atol=1e-7)


def test_a_random_layer_and_independent_noise():
    d, m = 3, 5
    generator = torch.Generator().manual_seed(3)
    x = ms.sphere.uniform(4, d, seed=1)[None]
    layer = RandomLayer(torch.tanh, m)
    w1 = torch.randn(1, *layer.fresh(4, d), dtype=torch.float64, generator=generator)
    w2 = torch.randn(1, *layer.size(4, d), dtype=torch.float64, generator=generator)
    expected = torch.tanh(x[0] @ w1[0]) @ w2[0] / math.sqrt(m)
    assert torch.allclose(layer.at([x], w2, lambda: w1, 1.0)[0][0], expected, atol=1e-14)
    own = Independent(Covariance.of_activation("relu"))
    normals = torch.randn(1, 4, d, dtype=torch.float64, generator=generator)
    assert torch.equal(own.at([x], normals, NONE, 1.0)[0], math.sqrt(0.5) * normals)


def test_threads_do_not_change_a_digit():
    x, field = ms.sphere.uniform(200, 5, seed=1)[None], Gram(Covariance.of_activation("gelu"))
    z = torch.randn(1, 200, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    rows = torch.randn(1, 5000, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    right = torch.randn(1, 30, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append((field.at([x], z, NONE, 1.0)[0], contracted(rows, right)))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))
    assert torch.allclose(found[0][1][0], rows[0] @ right[0], atol=1e-12)


def test_a_matrix_that_is_not_positive_is_refused():
    with pytest.raises(InvalidInput, match="positive semidefinite, got a pivot -3"):
        rooted(np.array([[[1.0, 2.0], [2.0, 1.0]]]), torch.ones(1, 2, 2, dtype=torch.float64), 1.0)


@pytest.mark.parametrize(
    ("n", "seed", "closest", "farthest"),
    [(20, 8, -3, -0.5), (20, 7, -3, -0.5), (8, 15, -7, -1), (30, 1004, -7, -0.5), (100, 102, -7, -0.5)],
)
def test_tokens_at_all_distances_have_their_covariance(n, seed, closest, farthest):
    """Up to signs; tokens that are close foretell others with weights that multiply the rounding of kappa."""
    draw = np.random.default_rng(seed)
    apart = 10.0 ** draw.uniform(closest, farthest, (200, n, 1)) * draw.normal(size=(200, n, 3))
    x = draw.choice([-1.0, 1.0], (200, n, 1)) * (np.array([1.0, 0.0, 0.0]) + apart)
    x = torch.from_numpy(x / np.linalg.norm(x, axis=2, keepdims=True))
    covariance = Covariance.of_activation("tanh")
    matrices = covariance.function(overlaps(x))
    full = np.tril(matrices) + np.tril(matrices, -1).transpose(0, 2, 1)
    root = rooted(np.ascontiguousarray(matrices), torch.eye(n).double().repeat(200, 1, 1), covariance.one).numpy()
    assert np.abs(root @ root.transpose(0, 2, 1) - full).max() < 0.002 * covariance.one
