import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import ellipe, ellipk, iv

from metastable import Measure, SelfAttention, ZeroTemperature, solve
from metastable.errors import InvalidInput
from metastable.meanfield import Skewed, Uniform, VonMisesFisher, nodes, reference_skew, two_atom_distance
from metastable.papers.concentration.families import sheared
from weight_families import diagonal


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


def test_nodes_go_into_solve_and_graded_ones_win_at_late_times():
    """Flow-map error at t = 4, beta = 64, skewed law, 300 nodes: graded below equispaced by 100 and more (N9)."""
    flow = SelfAttention(sheared(0.5), 64.0)
    probes = nodes(Uniform(2), 2, 40)

    def images(rho):
        joined = torch.cat([rho.points, probes.points]), torch.cat([rho.mass, 0 * probes.mass])
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
        ({"d": 1, "n": 8}, "d must be >= 2, got 1"),
        ({"d": 2, "n": 0}, "n must be >= 1, got 0"),
        ({"d": 2, "n": 8, "kind": "gauss"}, "choose from auto, equispaced, quantile, graded"),
        ({"d": 5, "n": 8, "kind": "gauss"}, "choose from auto, sobol"),
        ({"d": 2, "n": 8, "kind": "graded"}, "need axis="),
        ({"d": 3, "n": 8, "kind": "graded", "axis": [0.0, 0.0, 0.0]}, "axis must be a finite non-zero vector"),
        ({"d": 3, "n": 8, "generator": [[1.0]]}, "generator must be a finite matrix of shape"),
        ({"d": 3, "n": 8, "pull": math.nan}, "pull must be finite"),
        ({"d": 2.0, "n": 8}, "d must be an integer"),
    ],
)
def test_bad_requests_are_refused(arguments, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        nodes(lambda x: torch.ones(len(x)), **arguments)


def flow_map_error(flow, rho, probes, exact, t):
    joined = Measure(torch.cat([rho.points, probes.points]), torch.cat([rho.mass, 0 * probes.mass]))
    images = solve(flow, joined, t=t, rtol=1e-11, atol=1e-11).end.points[rho.n :]
    return float((images - exact).square().sum(1).mean().sqrt()) if exact is not None else images


def test_circle_nodes_converge_faster_than_any_order():
    """Equispaced nodes with masses: the measured order grows from one doubling to the next, 4.7 and then 6.4."""
    flow, law, t = SelfAttention(sheared(0.5), 16.0), reference_skew(), 1.0
    probes = nodes(law, 2, 30)
    exact = flow_map_error(flow, nodes(law, 2, 500), probes, None, t)
    errors = [flow_map_error(flow, nodes(law, 2, n), probes, exact, t) for n in (32, 64, 128)]
    first, second = (math.log2(a / b) for a, b in itertools.pairwise(errors))
    assert first > 4
    assert second > first + 1


def test_sphere_nodes_converge_faster_than_iid_tokens():
    """Order in the number of nodes n: Gauss above 4 (spectral), Fibonacci above 0.9, iid 0.5."""
    flow, law, t = SelfAttention(diagonal(2, 1, 1), 16.0), Skewed([1.0, 1.0, 0.5], 0.6), 0.5
    probes = nodes(law, 3, 50)
    exact = flow_map_error(flow, nodes(law, 3, 1800), probes, None, t)
    order = {}
    for kind, sizes in (("gauss", (200, 450)), ("fibonacci", (300, 1200))):
        coarse, fine = (flow_map_error(flow, nodes(law, 3, n, kind=kind), probes, exact, t) for n in sizes)
        order[kind] = math.log(coarse / fine) / math.log(sizes[1] / sizes[0])
    assert order["gauss"] > 4
    assert order["fibonacci"] > 0.9


@pytest.mark.parametrize("t", [1.0, 2.0, 4.0])
def test_z6_two_poles(t):
    """Zero temperature from the uniform law, M = diag(2, 1, 1): W2^2 = 2s/(1+s), s = e^{-t}."""
    rho = nodes(Uniform(3), 3, 20000, kind="graded", axis=[1.0, 0.0, 0.0], depth=t)
    end = solve(ZeroTemperature(diagonal(2, 1, 1)), rho, t=t).end
    s = math.exp(-t)
    found = two_atom_distance(end, np.array([1.0, 0.0, 0.0]), 0.5)
    assert found == pytest.approx(math.sqrt(2 * s / (1 + s)), abs=1e-9)


@pytest.mark.parametrize("t", [1.0, 2.0, 4.0])
def test_z6_great_circle(t):
    """M = diag(2, 2, 1): W2^2 = 2 - 2[E(m) - (1-m)K(m)]/m, m = 1 - e^{-2t}; the distance to E is the exact W2."""
    rho = nodes(Uniform(3), 3, 20000, generator=np.diag([2.0, 2.0, 1.0]), pull=0.5 * t)
    end = solve(ZeroTemperature(diagonal(2, 2, 1)), rho, t=t).end
    m = 1 - math.exp(-2 * t)
    inside = torch.linalg.vector_norm(end.points[:, :2], dim=1)
    exact = math.sqrt(2 - 2 * (ellipe(m) - (1 - m) * ellipk(m)) / m)
    assert math.sqrt(float(end.mass @ (2 - 2 * inside))) == pytest.approx(exact, abs=1e-5)
