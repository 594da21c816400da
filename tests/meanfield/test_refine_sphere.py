"""Refinement on S^2 and beyond: what the estimate covers, and what it says when nodes do not see the law."""

import math

import numpy as np
import pytest
import torch

from metastable import AttentionWeights, SelfAttention, sphere
from metastable.errors import SolveError
from metastable.meanfield import Mixture, Skewed, Uniform, VonMisesFisher, nodes, solve
from metastable.meanfield.caps import split
from metastable.meanfield.product_rule import ProductRule
from metastable.meanfield.refine_sphere import _dense_sphere, _Quadrature, _sphere_rule, _SphereRun
from weight_families import diagonal


def test_e1_on_the_sphere():
    """|E u^2 at beta - E u^2 at zero temperature| ~ 1/beta at fixed t."""
    law, t = Skewed([1.0, 0.5, 0.2], 0.6), 0.5
    rho = nodes(law, 3, 2000)
    x = rho.points * torch.tensor([math.exp(t), 1.0, 1.0], dtype=torch.float64)
    exact = float(rho.mass @ (x[:, 0] ** 2 / x.square().sum(1)))
    betas, errors = (25.0, 50.0, 100.0), []
    for beta in betas:
        path = solve(diagonal(2, 1, 1), beta, law, t, tol=1e-5)
        assert path.converged
        errors.append(abs(float(path.end.mass @ path.end.points[:, 0] ** 2) - exact))
    assert np.polyfit(np.log(betas), np.log(errors), 1)[0] == pytest.approx(-1, abs=0.1)


def test_refinement_estimates_the_true_error():
    """The estimate at a loose tol covers the distance to a much finer solution."""
    w = AttentionWeights(V=np.diag([2.0, 1.0, 0.5]), B=[[1.0, 0.3, 0.0], [0.0, 1.0, 0.2], [0.0, 0.0, 1.0]])
    law = Skewed([1.0, 1.0, 0.0], 0.5)
    loose, fine = (solve(w, 8.0, law, 0.7, tol=tol) for tol in (1e-2, 1e-5))
    assert fine.converged and loose.converged
    gap = (loose.end.mass @ loose.end.points - fine.end.mass @ fine.end.points).abs().max()
    assert float(gap) <= loose.error + fine.error


@pytest.mark.parametrize("stretch", [(1.0, 1.0, 3.0), (4.0, 1.0, 1.5), (1.0, 2.0, 6.0)])
@pytest.mark.parametrize("size", [(12, 24), (20, 30), (30, 60)])
def test_the_error_of_finer_nodes_is_said(stretch, size):
    """x -> Ax/|Ax| between two rules: what is told of it covers what it errs by after it is normalised."""
    quadrature = _Quadrature(split(Skewed([1.0, 0.5, 0.2], 0.6)), ProductRule(np.array([0.0, 0.6, 0.8])), 3)

    def moved(points):
        return sphere.normalize(points * torch.tensor(stretch, dtype=torch.float64))

    points, mass, total = quadrature.nodes(size)
    run = _SphereRun(size, points, mass, total, moved(points)[None], points[None])
    frames, fine_mass, start, told = _dense_sphere(quadrature, run, tol=1.0)
    assert len(start) > len(points)
    true = float(((frames[0] - moved(start)).square().sum(1) @ fine_mass).sqrt())
    assert true < float(told[0]) < 30 * true
    assert len(_dense_sphere(quadrature, run, tol=0.5 * float(told[0]))[2]) == len(points)


def test_sobol_nodes_in_four_dimensions():
    path = solve(diagonal(2, 1, 1, 1), 4.0, VonMisesFisher([1.0, 0.0, 0.0, 0.0], 1.0), 0.5, tol=1e-2)
    assert path.converged
    assert path.end.d == 4
    assert 0 < path.error < 1e-2


MEAN = torch.tensor([0.3, 0.5, 0.6], dtype=torch.float64) / math.sqrt(0.7)


def spike(kappa, rest=0.0):
    """A function that keeps the place of its narrow part to itself: `rest` and a cap of mass 1/2."""
    return lambda x: rest + kappa * torch.exp(kappa * (x @ MEAN - 1))


@pytest.mark.parametrize("kappa", [300.0, 3000.0, 5e5, 1e8])
@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_narrow_part_whose_place_is_known_is_resolved(kappa, share):
    """E x = share (coth kappa - 1/kappa) mean at the start; at the end as from a finer tol."""
    part = VonMisesFisher(MEAN, kappa)
    law = part if share == 1 else Mixture([Uniform(3), part], [1 - share, share])
    path = solve(diagonal(2, 1, 1), 4.0, law, 0.1, tol=1e-3, max_nodes=2000)
    assert path.converged and path.error < 1e-3
    assert path.provenance["meanfield"]["total"] == pytest.approx(1, abs=1e-12)
    assert path.mass @ path.start.points == pytest.approx((share * (1 - 1 / kappa) * MEAN).numpy(), abs=1e-12)
    fine = solve(diagonal(2, 1, 1), 4.0, law, 0.1, tol=1e-6)
    assert fine.converged
    gap = (path.end.mass @ path.end.points - fine.end.mass @ fine.end.points).abs().max()
    assert float(gap) <= path.error + fine.error


@pytest.mark.parametrize("t", [0.5, 8.0])
@pytest.mark.parametrize("kappa", [3000.0, 1e8])
def test_the_error_covers_the_steps_in_time(kappa, t):
    """Few nodes resolve a narrow law to rounding; what is left is the error of the steps, the same in every run."""
    coarse, fine = (solve(diagonal(2, 1, 1), 4.0, VonMisesFisher(MEAN, kappa), t, tol=tol) for tol in (1e-3, 1e-9))
    gap = (coarse.end.mass @ coarse.end.points - fine.end.mass @ fine.end.points).abs().max()
    assert float(gap) <= coarse.error + fine.error < 2e-7
    assert coarse.errors[0] < 1e-12


@pytest.mark.parametrize(("kappa", "rest"), [(3000.0, 0.0), (3000.0, 0.5), (1e4, 0.0)])
def test_a_function_too_narrow_for_the_nodes_of_the_sphere_is_told(kappa, rest):
    with pytest.warns(RuntimeWarning, match=rf"of the law's {rest + 0.5:g}, which is too narrow for them"):
        path = solve(diagonal(2, 1, 1), 4.0, spike(kappa, rest), 0.1, tol=1e-3, max_nodes=2000)
    assert not path.converged
    assert 1e-3 < path.error < math.inf


def test_a_spike_between_the_nodes_of_the_sphere_is_told():
    with pytest.warns(RuntimeWarning, match=r"has spikes between the nodes, with 0\.5 of its mass"):
        path = solve(diagonal(2, 1, 1), 4.0, spike(5e5, 0.5), 0.1, tol=1e-3, max_nodes=4000)
    assert not path.converged
    assert 0.5 < path.error < math.inf


@pytest.mark.parametrize("kappa", [3e4, 5e5])
def test_a_function_that_no_node_of_the_sphere_sees_is_refused(kappa):
    with pytest.raises(SolveError, match=r"too narrow for .* nodes: none of them sees it"):
        solve(diagonal(2, 1, 1), 4.0, spike(kappa), 0.1, tol=1e-3, max_nodes=2000)


@pytest.mark.parametrize(
    ("V", "rule"),
    [
        (np.diag([2.0, 1.0, 1.0]), "graded"),
        (np.diag([2.0, 2.0, 1.0]), "pulled"),
        (np.diag([2.0, 2.0 - 1e-7, 1.0]), "pulled"),
        (np.eye(3), "plain"),
        ([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]], "plain"),
        ([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.5]], "plain"),
    ],
)
def test_the_rule_follows_the_dominant_space(V, rule):
    found = _sphere_rule(SelfAttention(AttentionWeights(V=V, B=np.eye(3)), 4.0), 1.0)
    assert (found.eps is not None) == (rule == "graded")
    assert (found.generator is not None) == (rule == "pulled")
