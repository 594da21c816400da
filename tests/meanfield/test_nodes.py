import math

import numpy as np
import pytest
import torch
from scipy.special import iv

from meanfield_families import tilted
from metastable import SelfAttention, solve
from metastable.errors import InvalidInput
from metastable.meanfield import Uniform, VonMisesFisher, nodes, reference_skew
from metastable.meanfield.product_rule import ProductRule


@pytest.mark.parametrize("kind", ["equispaced", "quantile", "graded"])
def test_circle_nodes_integrate_a_smooth_law(kind):
    rho = nodes(reference_skew(), 2, 96, kind=kind, axis=[1.0, 1.0])
    assert rho.n == 96
    assert float(rho.mass @ rho.points[:, 0]) == pytest.approx(0.25 * math.cos(1), abs=1e-13)
    assert float(rho.mass @ (rho.points[:, 0] * rho.points[:, 1])) == pytest.approx(0.075, abs=1e-13)


def test_graded_circle_nodes_are_dense_at_the_separatrix():
    rho = nodes(Uniform(2), 2, 200, kind="graded", axis=[1.0, 0.0], depth=8.0)
    gaps = torch.linalg.vector_norm(rho.points - rho.points.roll(1, 0), dim=1)
    at_top = int(rho.points[:, 1].argmax())
    assert float(gaps[at_top]) < 1e-3 * float(gaps.max())
    assert float(rho.mass @ torch.exp(rho.points[:, 1])) == pytest.approx(iv(0, 1), abs=1e-12)


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({"kind": "gauss"}, 1e-12),
        ({"kind": "graded", "axis": [1.0, 1.0, 0.0]}, 1e-12),
        ({"generator": np.diag([2.0, 1.0, 1.0]), "pull": 0.5}, 1e-12),
        ({"kind": "fibonacci"}, 1e-5),
        ({"kind": "sobol"}, 1e-3),
    ],
)
def test_sphere_nodes_give_the_mean_of_von_mises_fisher(options, tolerance):
    mean = np.array([1.0, 2.0, 3.0]) / math.sqrt(14)
    rho = nodes(VonMisesFisher(mean, 4.0), 3, 1800, **options)
    assert (rho.mass @ rho.points).numpy() @ mean == pytest.approx(1 / math.tanh(4) - 0.25, abs=tolerance)


def test_sobol_nodes_in_high_dimension_beat_the_square_root():
    mean = torch.eye(6, dtype=torch.float64)[0]
    law = VonMisesFisher(mean, 2.0)
    exact = float(iv(3, 2.0) / iv(2, 2.0))
    rho = nodes(law, 6, 4096)
    iid_sigma = math.sqrt(float(rho.mass @ rho.points[:, 0] ** 2) - exact**2) / math.sqrt(4096)
    assert abs(float(rho.mass @ rho.points[:, 0]) - exact) < 0.2 * iid_sigma


@pytest.mark.parametrize("fine", [(60, 64), (45, 33)])
def test_product_grids_interpolate_smooth_functions(fine):
    rule = ProductRule(np.array([1.0, 0.2, 0.3]), eps=0.05)

    def function(x):
        return np.stack([np.exp(x @ [0.3, 0.5, 0.2]), x[:, 0] * x[:, 1]], axis=1)

    found = rule.interpolate(function(rule.nodes(30, 32)[0]), (30, 32), fine)
    assert np.abs(found - function(rule.nodes(*fine)[0])).max() < 1e-11


def test_nodes_go_into_solve_and_graded_ones_win_at_late_times():
    """Flow-map error at t = 4, beta = 64, skewed law, 300 nodes: graded below equispaced by 100 and more (N9)."""
    flow = SelfAttention(tilted(0.5), 64.0)
    probes = nodes(Uniform(2), 2, 40)

    def images(rho):
        joined = torch.cat([rho.points, probes.points]), torch.cat([rho.mass, 0 * probes.mass])
        from metastable import Measure

        return solve(flow, Measure(*joined), t=3.0, rtol=1e-9, atol=1e-9).end.points[rho.n :]

    law = reference_skew()
    exact = images(nodes(law, 2, 1200, kind="graded", axis=[1.0, 0.0], depth=4.0))
    error = {
        kind: float(
            (images(nodes(law, 2, 300, kind=kind, axis=[1.0, 0.0], depth=3.0)) - exact).square().mean().sqrt()
        )
        for kind in ("equispaced", "graded")
    }
    assert error["graded"] < 1e-6
    assert error["graded"] < 1e-2 * error["equispaced"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"d": 1, "n": 8}, "needs d >= 2"),
        ({"d": 2, "n": 0}, "number of nodes must be >= 1"),
        ({"d": 2, "n": 8, "kind": "gauss"}, "choose from auto, equispaced, quantile, graded"),
        ({"d": 5, "n": 8, "kind": "gauss"}, "choose from auto, sobol"),
        ({"d": 2, "n": 8, "kind": "graded"}, "need axis="),
        ({"d": 3, "n": 8, "kind": "graded", "axis": [0.0, 0.0, 0.0]}, "axis must be a non-zero vector"),
    ],
)
def test_bad_requests_are_refused(arguments, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        nodes(lambda x: torch.ones(len(x)), **arguments)
