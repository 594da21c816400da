"""Queries near an ellipse: one coordinate where they lie on it, the plane where they do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention.attention_reference import masses
from attention.circle.circle_tokens import circle, off_by
from metastable.attention import Operands
from metastable.attention.circle.cells import attend_circle
from metastable.attention.circle.curve import attend_ellipse
from metastable.attention.circle.ellipse import fit_ellipse
from metastable.attention.circle.keys import gather_keys
from metastable.attention.circle.plane import attend_plane


@pytest.mark.parametrize("off", [0.0, 1e-15, 1e-12, 1e-7, 0.1])
@pytest.mark.parametrize("second_axis", [1.0, 1e-3, 1e-6, 0.0])
def test_queries_near_an_ellipse(off, second_axis):
    """From queries on one ellipse to any queries, from a circle to a segment: the tolerance holds throughout."""
    rng = np.random.default_rng(0)
    keys, mass = circle(3000, "clustered", 0), masses(3000, 1)
    queries = circle(3000, "uniform", 2).numpy() @ rng.normal(size=(2, 2)) @ np.diag([1.0, second_axis])
    queries = torch.from_numpy((queries @ rng.normal(size=(2, 2))) * (1 + off * rng.normal(size=(3000, 1))))
    mean, log_partition, error = attend_circle(Operands(queries, keys, keys, mass, 40.0), 1e-10)
    sample = slice(None, None, 101)
    assert off_by((mean[sample], log_partition[sample]), queries[sample], keys, mass, 40.0) <= error <= 1e-10


def test_the_curve_and_the_plane_are_one_answer():
    """Two methods for the same queries agree within the sum of their errors."""
    keys, mass = circle(4000, "uniform", 0).numpy(), masses(4000, 1).numpy()
    queries = circle(9000, "uniform", 2).numpy() @ np.array([[1.0, 0.5], [-0.3, 0.8]])
    ellipse = fit_ellipse(queries)
    cells, _ = gather_keys(keys, mass, 9, 16)
    mean, log_partition, error = attend_ellipse(cells, queries, 30.0, ellipse, 1e-9)
    other, other_log, other_error = attend_plane(cells, queries, 30.0, 30.0 * ellipse.longest, 1e-9)
    assert np.linalg.norm(mean - other, axis=1).max() <= error + other_error
    assert np.abs(log_partition - other_log).max() <= error + other_error
    assert max(error, other_error) <= 1e-9


def test_queries_off_the_ellipse_are_left_to_the_plane():
    keys, mass = circle(500, "uniform", 0).numpy(), masses(500, 1).numpy()
    queries = circle(500, "uniform", 2).numpy()
    ellipse = fit_ellipse(queries)
    queries[77] *= 1.0 + 1e-8
    cells, _ = gather_keys(keys, mass, 9, 16)
    assert attend_ellipse(cells, queries, 30.0, ellipse, 1e-9) is None
    assert attend_ellipse(cells, queries, 30.0, ellipse, 1e-5) is not None
