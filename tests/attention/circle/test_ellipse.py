"""The ellipse through queries that are a matrix times tokens on the circle."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention.circle.circle_tokens import MATRICES, circle
from metastable.attention import Operands
from metastable.attention.circle.ellipse import ellipse_of, fit_ellipse


def test_ellipse_of_the_queries():
    """B^T x lies on an ellipse with the singular values of B as half axes; other queries on none."""
    x, matrix = circle(1000, "uniform", 0).numpy(), np.array(MATRICES["B"])
    found = fit_ellipse(x @ matrix)
    assert found is not None
    np.testing.assert_allclose(np.linalg.norm(x @ matrix @ found.to_circle, axis=1), 1.0, rtol=1e-13)
    np.testing.assert_allclose(np.linalg.svd(found.from_circle)[1], np.linalg.svd(matrix)[1], rtol=1e-12)
    assert found.longest == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-12)
    assert fit_ellipse(np.random.default_rng(0).normal(size=(1000, 2))) is None
    assert fit_ellipse(x @ np.array([[1.0, 2.0], [2.0, 4.0]])) is None
    assert fit_ellipse(np.zeros((10, 2))) is None


def test_operands_in_any_layout_and_precision():
    x = circle(200, "uniform", 1)
    q = x @ torch.tensor(MATRICES["B"], dtype=torch.float64)
    mass = torch.ones(200, dtype=torch.float64)
    found, turned = (ellipse_of(Operands(y, x, x, mass, 1.0)) for y in (q, q.T.contiguous().T))
    np.testing.assert_array_equal(found.to_circle, turned.to_circle)
    single = x.float()
    assert ellipse_of(Operands(q.float(), single, single, mass, 1.0)) is None  # rounded off any ellipse
