"""`meanfield.solve` as an interface: what it returns, refuses, and says."""

import math

import pytest
import torch

import metastable as ms
from meanfield_families import diagonal, tilted
from metastable import Measure, MultiHead, SelfAttention, sphere
from metastable.errors import InvalidInput, NotDefined, SolveError
from metastable.meanfield import (
    Empirical,
    Mixture,
    Uniform,
    VonMisesFisher,
    distance_to_limit,
    reference_skew,
    solve,
    solve_flow,
)


def test_result_is_a_path_with_its_error(tmp_path):
    path = solve(tilted(0.5), 8.0, reference_skew(), 1.0, tol=1e-5, times=[0.0, 0.5, 1.0])
    assert isinstance(path, ms.Path)
    assert path.converged and 0 < path.error < 1e-5
    assert path.errors.shape == (3,)
    assert path.provenance["meanfield"]["error"] == path.error
    assert path.points.shape == (3, path.end.n, 2)
    assert path.end_time == 1.0
    assert torch.equal(path.points[-1], path.end.points)
    assert torch.allclose(path.points[0], path.start.points, atol=1e-14)
    path.save(tmp_path / "run.zarr")
    assert ms.load(tmp_path / "run.zarr").provenance["meanfield"]["converged"] is True


def test_estimate_covers_the_error():
    coarse, fine = (solve(tilted(0.5), 32.0, reference_skew(), 2.0, tol=tol) for tol in (1e-2, 1e-7))
    gap = abs(float(distance_to_limit(coarse).distance[-1] - distance_to_limit(fine).distance[-1]))
    assert gap <= float(distance_to_limit(coarse).error[-1]) + 1e-7


def test_density_is_normalised_and_its_integral_recorded():
    w = diagonal(2, 1)
    a = solve(w, 4.0, lambda x: 1 + 0.5 * x[:, 0], 0.5, tol=1e-4)
    b = solve(w, 4.0, lambda x: 3 + 1.5 * x[:, 0], 0.5, tol=1e-4)
    assert b.provenance["meanfield"]["total"] == pytest.approx(3.0, abs=1e-12)
    assert torch.allclose(a.end.points, b.end.points, atol=1e-12)


def test_end_is_at_t_when_times_stop_before():
    path = solve(diagonal(2, 1), 4.0, Uniform(2), 1.0, tol=1e-4, times=[0.25, 0.5])
    assert path.times.tolist() == [0.25, 0.5]
    assert path.points.shape[0] == 2
    assert not torch.allclose(path.points[-1], path.end.points)


def test_tokens_of_a_model_are_their_own_law():
    tokens = Measure(sphere.uniform(30, 5, seed=2))
    w = ms.AttentionWeights(V=torch.eye(5), B=torch.eye(5))
    path = solve(w, 2.0, Empirical(tokens), 1.0, tol=1e-7)
    plain = ms.solve(SelfAttention(w, 2.0), tokens, t=1.0, rtol=1e-11, atol=1e-11)
    assert path.converged
    assert torch.allclose(path.end.points, plain.end.points, atol=1e-8)


def test_two_heads_are_solved_too():
    one, half = SelfAttention(tilted(0.5), 8.0), MultiHead([SelfAttention(tilted(0.5), 8.0)] * 2, combine="mean")
    a, b = (solve_flow(flow, Uniform(2), 1.0, 1e-6) for flow in (one, half))
    assert a.converged and b.converged
    assert torch.allclose(a.end.points, b.end.points, atol=1e-8)


def test_it_says_when_it_cannot():
    """A skewed law at beta = 64 is not resolved by 256 nodes until t = 2; the estimate covers the true error."""
    with pytest.warns(RuntimeWarning, match="was not resolved to tol = 1e-07"):
        path = solve(tilted(0.5), 64.0, reference_skew(), 2.0, tol=1e-7, max_nodes=256)
    assert not path.converged
    assert "NOT converged" in repr(path)
    fine = solve(tilted(0.5), 64.0, reference_skew(), 2.0, tol=1e-7)
    off = abs(float(distance_to_limit(path).distance[-1] - distance_to_limit(fine).distance[-1]))
    assert 1e-7 < off < path.error
    with pytest.raises(SolveError, match="raise max_nodes or tol"):
        solve(tilted(0.5), 64.0, reference_skew(), 2.0, tol=1e-7, max_nodes=256, strict=True)


def test_a_loose_tolerance_leaves_the_metastable_phase_in_time():
    """At beta = 160 the exit, at t = 17.9, begins with a mass of 1e-8 between the clusters.

    A tolerance of 1e-2 neglects as much at first; it has to notice.
    """
    loose, tight = (solve(tilted(0.5), 160.0, Uniform(2), 18.0, tol=tol) for tol in (1e-2, 1e-3))
    assert loose.converged and tight.converged
    off = abs(float(distance_to_limit(loose).distance[-1] - distance_to_limit(tight).distance[-1]))
    assert off < loose.error + tight.error < 0.011


@pytest.mark.parametrize("kappa", [1e3, 1e6, 1e9])
def test_a_narrow_bump_on_the_circle_is_not_missed(kappa):
    """Half of the mass within kappa^{-1/2}: E x of the law is A_2(kappa)/2 times the centre."""
    centre = torch.tensor([0.6, 0.8], dtype=torch.float64)
    path = solve(diagonal(2, 1), 4.0, Mixture([Uniform(2), VonMisesFisher(centre, kappa)]), 0.3, tol=1e-4)
    assert path.converged
    assert path.provenance["meanfield"]["total"] == pytest.approx(1.0, abs=1e-12)
    mean = path.start.mass @ path.start.points
    assert torch.allclose(mean, 0.5 * (1 - 0.5 / kappa) * centre, atol=1e-6)


def test_a_law_too_narrow_for_the_nodes_of_the_sphere_is_told():
    law = Mixture([Uniform(3), VonMisesFisher([0.3, 0.5, 0.6], 3000.0)])
    with pytest.warns(RuntimeWarning, match="which is too narrow for them"):
        path = solve(diagonal(2, 1, 1), 4.0, law, 0.1, tol=1e-3, max_nodes=2000)
    assert not path.converged
    assert path.error > 1e-3
    with pytest.warns(RuntimeWarning, match="which is too narrow for them"):
        path = solve(diagonal(2, 1, 1), 4.0, VonMisesFisher([0.3, 0.5, 0.6], 5e5), 0.1, tol=1e-3, max_nodes=4000)
    assert 0.5 < path.error < math.inf
    with pytest.raises(SolveError, match=r"too narrow for .* nodes: none of them sees it"):
        solve(diagonal(2, 1, 1), 4.0, VonMisesFisher([0.3, 0.5, 0.6], 1e8), 0.1, tol=1e-3, max_nodes=2000)


def test_a_law_with_jumps_is_resolved():
    """f = 2 on half of the circle: the cells of the law close in on its jumps until they hold no mass."""
    path = solve(diagonal(2, 1), 16.0, lambda x: (x[:, 1] > 0).double(), 1.0, tol=1e-6)
    assert path.converged
    assert path.provenance["meanfield"]["total"] == pytest.approx(0.5, abs=1e-12)
    assert float(path.mass @ path.start.points[:, 1]) == pytest.approx(2 / math.pi, abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"t": -1.0}, "t must be finite and >= 0, got -1.0"),
        ({"t": math.nan}, "t must be finite"),
        ({"tol": 0.0}, "tol must be finite and > 0, got 0.0"),
        ({"tol": -1e-6}, "tol must be finite and > 0"),
        ({"beta": -3.0}, "beta must be finite and >= 0"),
        ({"times": [0.5, 0.2]}, "times must increase within"),
        ({"times": [2.0]}, "times must increase within"),
        ({"max_nodes": 3}, "max_nodes must be >= 16"),
        ({"density": Uniform(3)}, "lives in d = 3 but the weights in d = 2"),
        ({"density": lambda x: x[:, 0]}, "density must be >= 0"),
        ({"density": lambda x: x[:, 0] * math.nan}, "density must be finite"),
        ({"density": lambda x: x}, "density must return shape"),
        ({"density": lambda x: torch.zeros(len(x))}, "density must have a positive integral"),
        ({"density": "uniform"}, "density must be a law"),
        ({"density": lambda x: 1 / (torch.atan2(x[:, 1], x[:, 0]) - 1).abs()}, "must be integrable"),
        ({"w": ms.AttentionWeights(V=[[1.0]], B=[[1.0]])}, "needs d >= 2, got weights with d = 1"),
        ({"tol": math.nan}, "tol must be finite and > 0"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    given = {"w": diagonal(2, 1), "beta": 4.0, "density": Uniform(2), "t": 1.0} | arguments
    with pytest.raises(InvalidInput, match=sentence) as caught:
        solve(**given)
    assert "\n" not in str(caught.value)


def test_curve_is_refused_where_there_is_no_limit():
    rotation = ms.AttentionWeights(V=[[0.0, -1.0], [1.0, 0.0]], B=torch.eye(2))
    path = solve(rotation, 4.0, Uniform(2), 0.1, tol=1e-3)
    with pytest.raises(NotDefined, match="complex dominant pair"):
        distance_to_limit(path)
    with pytest.raises(InvalidInput, match=r"path of meanfield\.solve"):
        distance_to_limit(ms.solve(SelfAttention(diagonal(2, 1), 1.0), sphere.equispaced(4), t=0.1))
