"""`meanfield.solve` as an interface: what it returns, refuses, and says."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

import metastable as ms
from fuzz.meanfield import CASES
from metastable import Measure, MultiHead, SelfAttention, sphere
from metastable.errors import InvalidInput, SolveError
from metastable.meanfield import (
    Density,
    Mixture,
    Skewed,
    Uniform,
    VonMisesFisher,
    distance_to_limit,
    nodes,
    reference_skew,
    solve,
    solve_flow,
)
from metastable.papers.concentration.families import plain, sheared
from weight_families import diagonal


def test_density_is_normalised_and_its_integral_recorded():
    w = plain()
    a = solve(w, 4.0, lambda x: 1 + 0.5 * x[:, 0], 0.5, tol=1e-4)
    b = solve(w, 4.0, lambda x: 3 + 1.5 * x[:, 0], 0.5, tol=1e-4)
    assert b.provenance["meanfield"]["total"] == pytest.approx(3.0, abs=1e-12)
    assert torch.allclose(a.end.points, b.end.points, atol=1e-12)


def test_end_is_at_t_when_times_stop_before():
    path = solve(plain(), 4.0, Uniform(2), 1.0, tol=1e-4, times=[0.25, 0.5])
    assert path.times.tolist() == [0.25, 0.5]
    assert path.points.shape[0] == 2
    assert not torch.allclose(path.points[-1], path.end.points)


def test_two_heads_are_solved_too():
    one, half = SelfAttention(sheared(0.5), 8.0), MultiHead([SelfAttention(sheared(0.5), 8.0)] * 2, combine="mean")
    a, b = (solve_flow(flow, Uniform(2), 1.0, 1e-6) for flow in (one, half))
    assert a.converged and b.converged
    assert torch.allclose(a.end.points, b.end.points, atol=1e-8)


def test_it_says_when_it_cannot():
    """A skewed law at beta = 64 is not resolved by 256 nodes until t = 2; the estimate covers the true error."""
    with pytest.warns(RuntimeWarning, match="was not resolved to tol = 1e-07"):
        path = solve(sheared(0.5), 64.0, reference_skew(), 2.0, tol=1e-7, max_nodes=256)
    assert not path.converged
    assert "NOT converged" in repr(path)
    fine = solve(sheared(0.5), 64.0, reference_skew(), 2.0, tol=1e-7)
    off = abs(float(distance_to_limit(path).distance[-1] - distance_to_limit(fine).distance[-1]))
    assert 1e-7 < off < path.error
    with pytest.raises(SolveError, match="raise max_nodes or tol"):
        solve(sheared(0.5), 64.0, reference_skew(), 2.0, tol=1e-7, max_nodes=256, strict=True)


def test_a_loose_tolerance_leaves_the_metastable_phase_in_time():
    """At beta = 160 the exit, at t = 17.9, begins with a mass of 1e-8 between the clusters.

    A tolerance of 1e-2 neglects as much at first; it has to notice.
    """
    loose, tight = (solve(sheared(0.5), 160.0, Uniform(2), 18.0, tol=tol) for tol in (1e-2, 1e-3))
    assert loose.converged and tight.converged
    off = abs(float(distance_to_limit(loose).distance[-1] - distance_to_limit(tight).distance[-1]))
    assert off < loose.error + tight.error < 0.011


@pytest.mark.parametrize(("d", "kappa", "tol"), [(3, 1e3, 1e-3), (3, 1e9, 1e-3), (4, 1e6, 3e-2)])
def test_a_narrow_part_of_a_mixture_is_resolved(d, kappa, tol):
    """Its centre moves like one token that carries its mass, up to 1/kappa; nothing of the law is lost."""
    w = ms.AttentionWeights(V=np.diag(np.r_[2.0, np.ones(d - 1)]), B=np.eye(d))
    centre = sphere.normalize(torch.arange(1.0, d + 1, dtype=torch.float64))
    law = Mixture([Uniform(d), VonMisesFisher(centre, kappa)], [0.7, 0.3])
    path = solve(w, 4.0, law, 0.3, tol=tol)
    assert path.converged and path.provenance["meanfield"]["total"] == pytest.approx(1.0, abs=1e-12)
    start = path.start.mass @ path.start.points
    assert torch.allclose(start, 0.3 * (1 - (d - 1) / (2 * kappa)) * centre, atol=tol)
    background = nodes(Uniform(d), d, 1024)
    tokens = Measure(
        torch.cat([background.points, centre[None]]), torch.cat([0.7 * background.mass, law.weights[1:]])
    )
    end = ms.solve(SelfAttention(w, 4.0), tokens, t=0.3).end.points[-1]
    near = (path.start.points - centre).norm(dim=1) < 5 / math.sqrt(kappa)
    near &= path.start.mass > 0.1 * path.start.mass[near].max()
    share = path.mass[near] / path.mass[near].sum()
    assert torch.allclose(share @ path.end.points[near], end, atol=2 * tol + 10 / kappa)


@pytest.mark.parametrize("kappa", [1e5, 2e6])
def test_a_spike_of_a_function_on_the_sphere_is_reported(kappa):
    """30% of the mass within kappa^{-1/2}: the nodes do not see it, but the path says so, and what would help."""
    w = diagonal(2, 1, 1)
    for seed in range(2):
        spike = VonMisesFisher(sphere.uniform(1, 3, seed=seed)[0], kappa)
        with pytest.warns(RuntimeWarning, match=r"spikes between the nodes, with 0\.3 of its mass.*Mixture"):
            path = solve(w, 4.0, lambda x, spike=spike: 0.7 + 0.3 * spike(x), 0.2, tol=1e-3)
        assert not path.converged and path.error > 1


@pytest.mark.parametrize("kappa", [1e4, 1e7, 1e9])
def test_spikes_of_a_function_on_the_circle_are_found(kappa):
    first, second = (VonMisesFisher([math.cos(a), math.sin(a)], kappa) for a in (0.7, 4.0))
    path = solve(plain(), 4.0, lambda x: 0.5 + 0.3 * first(x) + 0.2 * second(x), 0.3, tol=1e-4)
    assert path.converged
    assert path.provenance["meanfield"]["total"] == pytest.approx(1.0, abs=1e-9)
    expected = (1 - 0.5 / kappa) * (0.3 * first.mean + 0.2 * second.mean)
    assert torch.allclose(path.start.mass @ path.start.points, expected, atol=1e-6)


@pytest.mark.parametrize("angle", [0.3, math.pi])
def test_an_arc_that_rotates_and_collapses(angle):
    """Panels without mass are pressed to points, which divided zero by zero."""
    w = ms.AttentionWeights(
        V=[[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]], B=np.eye(2)
    )
    path = solve(w, 8.0, lambda x: (x[:, 0] > 0.85).double(), 8.0, tol=1e-2)
    assert path.converged


@pytest.mark.parametrize("kappa", [1e3, 1e6, 1e9])
def test_a_narrow_bump_on_the_circle_is_not_missed(kappa):
    """Half of the mass within kappa^{-1/2}: E x of the law is A_2(kappa)/2 times the centre."""
    centre = torch.tensor([0.6, 0.8], dtype=torch.float64)
    path = solve(plain(), 4.0, Mixture([Uniform(2), VonMisesFisher(centre, kappa)]), 0.3, tol=1e-4)
    assert path.converged
    assert path.provenance["meanfield"]["total"] == pytest.approx(1.0, abs=1e-12)
    mean = path.start.mass @ path.start.points
    assert torch.allclose(mean, 0.5 * (1 - 0.5 / kappa) * centre, atol=1e-6)


def test_a_law_with_jumps_is_resolved():
    """f = 2 on half of the circle: the cells of the law close in on its jumps until they hold no mass."""
    path = solve(plain(), 16.0, lambda x: (x[:, 1] > 0).double(), 1.0, tol=1e-6)
    assert path.converged
    assert path.provenance["meanfield"]["total"] == pytest.approx(0.5, abs=1e-12)
    assert float(path.mass @ path.start.points[:, 1]) == pytest.approx(2 / math.pi, abs=1e-12)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"t": -1.0}, "t must be >= 0 and <= 1e\\+06, got -1.0"),
        ({"t": math.nan}, "t must be finite"),
        ({"tol": 0.0}, "tol must be >= 1e-14 and <= 2, got 0.0"),
        ({"tol": -1e-6}, "tol must be >= 1e-14"),
        ({"beta": -3.0}, "beta must be >= 0, got -3.0"),
        ({"times": [0.5, 0.2]}, "times must be strictly increasing"),
        ({"times": [2.0]}, "times must increase within"),
        ({"max_nodes": 3}, "max_nodes must be >= 16"),
        ({"device": "nowhere"}, "device 'nowhere' cannot be used"),
        ({"density": Uniform(3)}, "lives in d = 3 but the weights in d = 2"),
        ({"density": lambda x: x[:, 0]}, "density must be >= 0"),
        ({"density": lambda x: x[:, 0] * math.nan}, "density must be finite"),
        ({"density": lambda x: x}, "density must return shape"),
        ({"density": lambda x: torch.zeros(len(x))}, "density must have a positive integral"),
        ({"density": "uniform"}, "density must be a law"),
        ({"density": lambda x: x.no_such_thing}, "but it raised AttributeError"),
        ({"density": lambda x: 1e308 * torch.ones(len(x))}, "density must be finite, got inf"),
        ({"density": lambda x: 1e308 * torch.ones(len(x)).double()}, r"density must be <= 1e\+200, got 1e\+308"),
        ({"density": lambda x: 1e-310 * torch.ones(len(x)).double()}, "density must have a positive integral"),
        ({"times": 1}, "times as a number must be >= 2, got 1"),
        ({"times": []}, "times must increase within"),
        ({"times": [[0.0]]}, "times must be one row of numbers"),
        ({"t": 2**63}, "t must be >= 0"),
        ({"strict": 1}, "strict must be True or False"),
        ({"normalized": None}, "normalized must be True or False"),
        ({"tol": np.ones(3)}, "tol must be a number"),
        ({"density": lambda x: 1 / (torch.atan2(x[:, 1], x[:, 0]) - 1).abs()}, "must be (integrable|finite)"),
        ({"w": ms.AttentionWeights(V=[[1.0]], B=[[1.0]])}, "needs d >= 2, got weights with d = 1"),
        ({"tol": math.nan}, "tol must be finite and >= 1e-14"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    given = {"w": plain(), "beta": 4.0, "density": Uniform(2), "t": 1.0} | arguments
    with pytest.raises(InvalidInput, match=sentence) as caught:
        solve(**given)
    assert "\n" not in str(caught.value)


def test_iid_tokens_converge_like_the_square_root():
    """Errors of E u^2 at t = 1 over 60 seeds: rms slope -1/2 and mean zero, both within four standard errors."""
    w, beta, law, seeds, sizes = sheared(0.5), 4.0, reference_skew(), 60, (30, 120, 480)
    path = solve(w, beta, law, 1.0, tol=1e-7)
    exact = float(path.end.mass @ path.end.points[:, 0] ** 2)
    flow = SelfAttention(w, beta)
    rms = []
    for n in sizes:
        ends = [
            ms.solve(flow, law.sample(n, seed=1000 * n + s), t=1.0, rtol=1e-5, atol=1e-5).end for s in range(seeds)
        ]
        errors = np.array([float(end.points[:, 0].square().mean()) for end in ends]) - exact
        rms.append(float(np.sqrt(np.mean(errors**2))))
    standard_error = math.sqrt(2 / (2 * seeds)) / math.log(sizes[-1] / sizes[0])
    slope = math.log(rms[-1] / rms[0]) / math.log(sizes[-1] / sizes[0])
    assert abs(slope + 0.5) < 4 * standard_error
    assert abs(errors.mean()) < 4 * errors.std() / math.sqrt(seeds)


def moebius(eta, d):
    """Density of the law of u = tanh(artanh u_0 + eta), relative to uniform: (cosh eta - u sinh eta)^{-(d-1)}."""
    return Density(lambda x: (math.cosh(eta) - math.sinh(eta) * x[:, -1]) ** (1.0 - d), d)


def test_q1_moebius_family_on_the_circle():
    """beta = 0: R(t) = 1/sqrt(1 + (1/R_0^2 - 1) e^{-t}), R_0 = tanh(eta/2)."""
    path = solve(diagonal(1, 1), 0.0, moebius(0.5, 2), 4.0, tol=1e-8, times=[0, 1, 2, 4])
    start = math.tanh(0.25)
    for i, t in enumerate((0, 1, 2, 4)):
        order = float(path.mass @ path.points[i, :, 1])
        assert order == pytest.approx(1 / math.sqrt(1 + (1 / start**2 - 1) * math.exp(-t)), abs=1e-8)
    assert order == pytest.approx(0.881469, abs=1e-6)


@pytest.mark.parametrize("t", [2.0, 4.0])
def test_q1_moebius_family_on_the_sphere(t):
    """beta = 0, d = 3: eta' = R = coth eta - eta/sinh^2 eta."""

    def mean(eta):
        return 1 / np.tanh(eta) - eta / np.sinh(eta) ** 2

    path = solve(diagonal(1, 1, 1), 0.0, moebius(0.5, 3), t, tol=1e-8)
    eta = solve_ivp(lambda _, eta: mean(eta), (0, t), [0.5], rtol=1e-12, atol=1e-13).y[0, -1]
    assert path.converged
    assert float(path.end.mass @ path.end.points[:, 2]) == pytest.approx(mean(eta), abs=1e-8)


@pytest.mark.parametrize(("normalized", "rate"), [(True, 1.0), (False, math.exp(-0.3))], ids=["Q2-SA", "Q3-USA"])
def test_mean_field_rates_differ_from_those_of_particles(normalized, rate):
    """d = 2, V = B = I, beta = .3: 1 - R ~ e^{-t} (SA), exp(-e^{-beta} t) (USA): mass lingers at the antipode."""
    times = [8.0, 9.0, 10.0, 11.0, 12.0]
    path = solve(diagonal(1, 1), 0.3, Skewed([1.0, 0.0], 0.5), 12.0, tol=1e-7, times=times, normalized=normalized)
    deficit = [1 - float(torch.linalg.vector_norm(path.mass @ frame)) for frame in path.points]
    assert -np.polyfit(times, np.log(deficit), 1)[0] == pytest.approx(rate, rel=0.02)


@pytest.mark.parametrize("case", sorted(CASES))
def test_fuzz(case):
    """More seeds of the same run in `make fuzz`."""
    wrong = {seed: sentence for seed in range(3) if (sentence := CASES[case](seed))}
    assert not wrong
