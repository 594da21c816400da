import math

import numpy as np
import pytest

from metastable.meanfield.product_rule import ProductRule


@pytest.mark.parametrize("fine", [(60, 64), (45, 33)])
def test_product_grids_interpolate_smooth_functions(fine):
    rule = ProductRule(np.array([1.0, 0.2, 0.3]), eps=0.05)

    def function(x):
        return np.stack([np.exp(x @ [0.3, 0.5, 0.2]), x[:, 0] * x[:, 1]], axis=1)

    found = rule.interpolate(function(rule.nodes(30, 32)[0]), (30, 32), fine)
    assert np.abs(found - function(rule.nodes(*fine)[0])).max() < 1e-11


@pytest.mark.parametrize("options", [{}, {"eps": 0.02}, {"generator": np.diag([2.0, 1.0, 0.5]), "pull": 0.3}])
def test_rules_integrate_polynomials(options):
    """E x x^T = I/3 under the uniform law, whatever the axis, the grading and the pull."""
    points, mass = ProductRule(np.array([1.0, 2.0, -1.0]), **options).nodes(48, 40)
    assert np.allclose(np.einsum("n,ni,nj->ij", mass, points, points), np.eye(3) / 3, atol=1e-12)
    assert np.allclose(mass @ points, 0.0, atol=1e-13)


def test_a_split_rule_does_not_feel_a_kink_at_the_equator():
    axis = np.array([0.0, 0.6, 0.8])
    for split, tolerance in ((True, 1e-14), (False, math.inf)):
        points, mass = ProductRule(axis, split=split).nodes(20, 8)
        error = abs(float(mass @ np.abs(points @ axis)) - 0.5)
        assert error < tolerance and (split or error > 1e-6)


def test_frame_ends_with_the_axis():
    rule = ProductRule(np.array([0.0, 3.0, 4.0]))
    assert np.allclose(rule.frame @ rule.frame.T, np.eye(3), atol=1e-15)
    assert rule.frame[2] == pytest.approx([0.0, 0.6, 0.8])
