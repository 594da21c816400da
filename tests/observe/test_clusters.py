"""Clusters against SciPy's single linkage."""

import math
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage

import metastable as ms
from metastable import observe
from metastable.errors import InvalidInput


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


def test_bad_angles():
    with pytest.raises(InvalidInput, match=r"angle must be > 0 and <= 3.14159, got 0.0"):
        observe.clusters(ms.sphere.uniform(5, 2), 0.0)
    with pytest.raises(InvalidInput, match="need tokens on the sphere"):
        observe.clusters(ms.Measure([[3.0, 0.0]], sphere=False))
