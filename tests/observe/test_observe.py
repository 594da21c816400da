"""Observables against definitions written out, and against SciPy."""

import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage

import metastable as ms
from metastable import observe
from metastable.errors import InvalidInput


def weights(seed, d):
    g = torch.Generator().manual_seed(seed)
    return ms.AttentionWeights(
        V=torch.randn(d, d, generator=g, dtype=torch.float64), B=torch.randn(d, d, generator=g, dtype=torch.float64)
    )


@given(seed=st.integers(0, 10**6), beta=st.sampled_from([0.0, 0.3, 5.0]))
def test_energy_and_entropy_against_their_definitions(seed, beta):
    w = weights(seed, 3)
    mass = torch.rand(8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    mass[2] = 0.0
    rho = ms.Measure(ms.sphere.uniform(8, 3, seed=seed), mass)
    scores = rho.points @ w.B @ rho.points.T
    pair = rho.mass[:, None] * rho.mass
    expected = (
        float((pair * torch.exp(beta * scores)).sum() / (2 * beta)) if beta else float((pair * scores).sum()) / 2
    )
    assert observe.interaction_energy(rho, w, beta) == pytest.approx(expected, rel=1e-12, abs=1e-14)
    if beta:
        assert observe.interaction_energy(rho, w, beta, log=True) == pytest.approx(math.log(expected), abs=1e-12)
    A = rho.mass * torch.exp(beta * scores)
    A = A / A.sum(1, keepdim=True)
    entropy = -torch.special.xlogy(A, A).sum(1)
    assert (observe.attention_entropy(rho, w, beta) - entropy).abs().max() < 1e-12


def test_log_energy_at_a_million():
    w = ms.AttentionWeights(V=torch.eye(3), B=torch.eye(3))
    log_energy = observe.interaction_energy(ms.sphere.uniform(10, 3), w, 1e6, log=True)
    assert log_energy == pytest.approx(1e6 - math.log(10) - math.log(2e6), abs=1e-6)


def test_order_parameter_and_effective_rank():
    assert observe.order_parameter([[1.0, 0.0], [-1.0, 0.0]]) == 0.0
    assert observe.order_parameter(ms.Measure([[1.0, 0.0], [-1.0, 0.0]], mass=[3, 1])) == 0.5
    assert observe.effective_rank([[1.0, 0.0, 0.0]] * 5) == pytest.approx(1.0)
    assert observe.effective_rank(torch.eye(4)) == pytest.approx(4.0)


def test_distance_to_subspace_keeps_its_digits():
    points = ms.sphere.from_angles([1e-9, math.pi - 2e-9])
    assert observe.distance_to_subspace(points, [[1.0], [0.0]]) == pytest.approx((1e-18 + 4e-18) / 2, rel=1e-6)
    x = ms.sphere.uniform(50, 4, seed=3)
    basis = torch.randn(4, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    projector = basis @ torch.linalg.inv(basis.T @ basis) @ basis.T
    expected = float((2 * (1 - (x @ projector).norm(dim=1))).mean())
    assert observe.distance_to_subspace(x, basis) == pytest.approx(expected, rel=1e-12)


def test_overlap_histogram_counts_pairs():
    x = ms.sphere.uniform(300, 3, seed=4)
    probability, edges = observe.overlap_histogram(x, bins=20)
    overlaps = (x @ x.T)[~torch.eye(300, dtype=torch.bool)].numpy()
    expected, _ = np.histogram(overlaps, bins=edges.numpy())
    assert np.abs(probability.numpy() - expected / expected.sum()).max() < 1e-12
    heavy = ms.Measure([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0]], mass=[1, 1, 2])
    probability, _ = observe.overlap_histogram(heavy, bins=2)
    assert probability.tolist() == pytest.approx([0.8, 0.2])


@given(seed=st.integers(0, 10**6), d=st.integers(2, 4), angle=st.floats(0.05, 1.0))
def test_clusters_against_scipys_single_linkage(seed, d, angle):
    x = ms.sphere.uniform(40, d, seed=seed)
    found = observe.clusters(x, angle)
    label = fcluster(linkage(x.numpy(), "single"), 2 * math.sin(angle / 2), "distance")
    assert len(found) == len(set(label))
    pairs = found.label.numpy()[:, None] == found.label.numpy()
    assert (pairs == (label[:, None] == label)).all()
    assert float(found.mass.sum()) == pytest.approx(1.0)
    assert (found.mass.diff() <= 1e-15).all()


def test_dense_clusters_do_not_write_the_graph_out(monkeypatch):
    centres = torch.eye(3, dtype=torch.float64)
    noise = 1e-3 * torch.randn(300, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    x = centres.repeat(100, 1) + noise
    written_out = observe.clusters(x, 0.1)
    monkeypatch.setattr(sys.modules["metastable.observe.clusters"], "PAIRS", 0)
    assert torch.equal(observe.clusters(x, 0.1).label, written_out.label)
    assert len(written_out) == 3


def test_along_a_path():
    w = ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))
    path = ms.solve(ms.SelfAttention(w, 1.0), ms.sphere.from_angles([0.0, 1.0, 2.0]), 5.0, times=6)
    order = observe.along(path, observe.order_parameter)
    assert (order.diff() > 0).all()


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x: observe.clusters(x, 0.0), r"angle must be in \(0, pi\], got 0.0"),
        (lambda x: observe.distance_to_subspace(x, [[1.0]]), r"shape \(2, k\)"),
        (lambda x: observe.distance_to_subspace(x, [[1.0, 2.0], [1.0, 2.0]]), "linearly independent"),
        (lambda x: observe.overlap_histogram(x, bins=0), "bins must be >= 1"),
        (lambda x: observe.overlap_histogram(x[:1]), "two tokens"),
        (
            lambda x: observe.attention_entropy(x, weights(0, 3), 1.0),
            "but the weights have dimension 3",
        ),
        (lambda x: observe.interaction_energy(x, weights(0, 2), -1.0), "beta must be finite"),
        (lambda x: observe.interaction_energy(x, weights(0, 2), 0.0, log=True), "needs beta > 0"),
    ],
)
def test_bad_input(call, match):
    with pytest.raises(InvalidInput, match=match):
        call(ms.sphere.uniform(5, 2))
