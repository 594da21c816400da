"""How n tokens approach the mean field: iid tokens like n^{-1/2}, deterministic nodes at a far higher order."""

import itertools
import math

import numpy as np
import torch

from meanfield_families import diagonal, tilted
from metastable import Measure, SelfAttention, solve
from metastable.meanfield import Skewed, nodes, reference_skew
from metastable.meanfield import solve as solve_mean_field


def test_iid_tokens_converge_like_the_square_root():
    """Errors of E u^2 at t = 1 over 60 seeds: rms slope -1/2 and mean zero, both within four standard errors."""
    w, beta, law, seeds, sizes = tilted(0.5), 4.0, reference_skew(), 60, (30, 120, 480)
    path = solve_mean_field(w, beta, law, 1.0, tol=1e-7)
    exact = float(path.end.mass @ path.end.points[:, 0] ** 2)
    flow = SelfAttention(w, beta)
    rms = []
    for n in sizes:
        ends = [
            solve(flow, law.sample(n, seed=1000 * n + s), t=1.0, rtol=1e-5, atol=1e-5).end for s in range(seeds)
        ]
        errors = np.array([float(end.points[:, 0].square().mean()) for end in ends]) - exact
        rms.append(float(np.sqrt(np.mean(errors**2))))
    standard_error = math.sqrt(2 / (2 * seeds)) / math.log(sizes[-1] / sizes[0])
    slope = math.log(rms[-1] / rms[0]) / math.log(sizes[-1] / sizes[0])
    assert abs(slope + 0.5) < 4 * standard_error
    assert abs(errors.mean()) < 4 * errors.std() / math.sqrt(seeds)


def flow_map_error(flow, rho, probes, exact, t):
    joined = Measure(torch.cat([rho.points, probes.points]), torch.cat([rho.mass, 0 * probes.mass]))
    images = solve(flow, joined, t=t, rtol=1e-11, atol=1e-11).end.points[rho.n :]
    return float((images - exact).square().sum(1).mean().sqrt()) if exact is not None else images


def test_circle_nodes_converge_faster_than_any_order():
    """Equispaced nodes with masses: the measured order grows from one doubling to the next, 4.7 and then 6.4."""
    flow, law, t = SelfAttention(tilted(0.5), 16.0), reference_skew(), 1.0
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
