import math

import numpy as np
import pytest
import torch
from scipy import stats

import metastable as ms
from metastable.errors import InvalidInput, NotDefined
from metastable.meanfield import Skewed, Uniform, nodes
from metastable.theory import effective_tokens, forecast, spectrum
from metastable.theory.finite_context import SATURATION, FiniteContext, finite_context, side_influence


def head(V, B=None):
    V = np.diag(V)
    return ms.AttentionWeights(V=V, B=np.eye(len(V)) if B is None else np.diag(B))


def law(d):
    return ms.Measure(ms.sphere.equispaced(4000)) if d == 2 else nodes(Uniform(d), d, 20_000)


def tangent(points):
    return (points[:, 0] / torch.linalg.vector_norm(points[:, 1:], dim=1)).numpy()


@pytest.mark.parametrize(
    ("V", "B", "pull", "b"),
    [
        ((2.0, 1.0), None, 2.0, 1.0),
        ((1.0, 1.0, 1.0), (3.0, 1.0, 1.0), 0.5, 1.0),
        ((1.0, 0.5), (5.0, 2.0), 0.5, 2.0),
    ],
)
def test_the_influence_of_two_levels_is_a_normal_tail(V, B, pull, b):
    """V_1 b/g Q(sqrt(beta b) eps): g = V_1 B_1 - V_2 b."""
    points = ms.sphere.uniform(500, len(V), seed=4)
    eps = tangent(points)
    expected = np.sign(eps) * pull * stats.norm.sf(math.sqrt(20.0 * b) * np.abs(eps))
    assert np.abs(side_influence(spectrum(head(V, B)), 20.0, points).numpy() - expected).max() < 1e-4


@pytest.mark.parametrize("d", [2, 3, 4])
def test_variance_for_a_uniform_law(d):
    """1/4 + F [2 r/sqrt(2 pi kappa) + r^2 (sqrt 2 - 1)/sqrt(pi kappa)], F = |S^{d-2}|/|S^{d-1}|, up to 1/kappa."""
    kappa, r = 2000.0, 2.0
    height = np.sqrt(stats.beta.ppf((np.arange(4000) + 0.5) / 4000, 0.5, (d - 1) / 2))
    height = torch.from_numpy(np.concatenate([-height, height]))
    points = torch.stack([height, (1 - height**2).sqrt(), *[torch.zeros(8000).double()] * (d - 2)], 1)
    upper = (points[:, 0] > 0).double()
    phi = upper + side_influence(spectrum(head([2.0] + [1.0] * (d - 1))), kappa, points)
    area = math.gamma(d / 2) / (math.sqrt(math.pi) * math.gamma((d - 1) / 2))
    excess = area * (math.sqrt(2) * r + r**2 * (math.sqrt(2) - 1)) / math.sqrt(math.pi * kappa)
    assert float(phi.var() - upper.var()) == pytest.approx(excess, rel=0.02)


@pytest.mark.parametrize(("l1", "l2", "a"), [(2.0, 1.0, 0.5), (1.0, 0.0, 0.8), (3.0, 1.0, 0.25)])
def test_the_mean_influence_is_the_floor_of_the_mean_field(l1, l2, a):
    """E2: Delta p = l1 a/(2 pi g beta)."""
    beta = 400.0
    rho = nodes(Skewed([1.0, 0.0], a), 2, 20_000, kind="equispaced")
    found = float(rho.mass @ side_influence(spectrum(head([l1, l2])), beta, rho.points))
    assert found == pytest.approx(l1 * a / (2 * math.pi * (l1 - l2) * beta), rel=0.02)


@pytest.mark.parametrize("n", [16, 101, 1000])
def test_at_zero_temperature_sides_are_binomial(n):
    found = finite_context(spectrum(head([2.0, 1.0])), 1e9, law(2), n, 40.0)
    counts = np.arange(n + 1)
    exact = 4 * float(stats.binom.pmf(counts, n, 0.5) @ np.abs(counts / n - 0.5))
    assert found.sampling == pytest.approx(exact, rel=1 / n)
    assert found.width < 1e-12 and found.squared == found.width + found.sampling + found.context
    assert found.rms == pytest.approx(math.sqrt(found.squared))


def test_before_tokens_are_there_the_wrong_side_costs_less():
    s = spectrum(head([2.0, 1.0]))
    parts = [finite_context(s, 64.0, law(2), 100, t) for t in (0.0, 1.0, 3.0, 5.0)]
    assert sorted(part.sampling for part in parts) == [part.sampling for part in parts]
    assert [part.width for part in parts] == pytest.approx(
        [2 - 4 / math.pi, *(ms.theory.uniform_distance(2, 1, t) ** 2 for t in (1.0, 3.0, 5.0))], abs=1e-4
    )


def two_poles(heights):
    """Exact W2^2 to half at each pole, for many samples of an even number of heights."""
    n = heights.shape[1]
    sign = np.repeat([1.0, -1.0], n // 2)
    return (2 - 2 * sign * -np.sort(-heights, axis=1)).mean(axis=1)


@pytest.mark.parametrize(
    ("V", "beta", "n", "t"),
    [((2.0, 1.0), 16.0, 64, 6.0), ((1.0, 0.0), 16.0, 32, 2.0), ((2.0, 1.0, 1.0), 16.0, 64, 6.0)],
)
def test_tokens(V, beta, n, t):
    """z-test at four standard errors plus 0.06 for the next order in 1/beta, seed 8; sampling alone is excluded."""
    d, draws = len(V), 1000
    points = ms.sphere.uniform(draws * n, d, seed=8).view(draws, n, d)
    path = ms.solve(ms.SelfAttention(head(V), beta), ms.Ensemble(points), t=t, rtol=1e-3, atol=1e-3)
    found = two_poles(path.points[1][..., 0].numpy())
    expected = finite_context(spectrum(head(V)), beta, law(d), n, t)
    error = found.std() / math.sqrt(draws) / expected.squared
    assert expected.in_range and abs(found.mean() / expected.squared - 1) < 4 * error + 0.06


@pytest.mark.slow
def test_the_influence_saturates_where_windows_are_empty():
    """Excess of n Var p_n over 1/4, in units of the first order, against n_eff/(n_eff + 4); 1500 samples each."""
    beta, draws = 16.0, 1500
    for d, n in ((2, 16), (2, 32), (2, 64), (3, 32), (3, 64), (3, 128)):
        s = spectrum(head([2.0] + [1.0] * (d - 1)))
        points = ms.sphere.uniform(draws * n, d, seed=n).view(draws, n, d)
        flow = ms.SelfAttention(s.weights, beta)
        ends = ms.solve(flow, ms.Ensemble(points), t=6.0, rtol=1e-3, atol=1e-3).points[1]
        square = ((ends[..., 0] > 0).double().mean(1) - 0.5) ** 2 * n
        rho = law(d)
        phi = (rho.points[:, 0] > 0).double() + side_influence(s, beta, rho)
        first = float(rho.mass @ (phi - rho.mass @ phi) ** 2) - 0.25
        share = (float(square.mean()) - 0.25) / first
        error = float(square.std()) / math.sqrt(draws) / first
        window = effective_tokens(n, beta, d)
        assert abs(share - window / (window + SATURATION)) < 4 * error + 0.1


def test_on_a_great_circle():
    rho = nodes(Uniform(3), 3, 5000)
    found = finite_context(spectrum(head([1.0, 1.0, -3.0])), 16.0, rho, 100, 0.6)
    assert found.sampling == pytest.approx(math.pi**2 / 300) and found.context > 0 and found.in_range
    assert finite_context(spectrum(head([1.0, 1.0])), 16.0, law(2), 100, 0.0).context == 0.0
    late = finite_context(spectrum(head([1.0, 1.0, -3.0])), 16.0, rho, 100, 3.0)
    assert "gather in clusters" in late.why
    skewed = nodes(Skewed([1.0, 0.0, 0.0], 0.5), 3, 5000)
    assert "not uniform" in finite_context(spectrum(head([1.0, 1.0, -3.0])), 16.0, skewed, 100, 0.7).why


def test_where_it_is_not_claimed():
    rho = law(2)
    early = finite_context(spectrum(head([2.0, 1.0])), 8.0, rho, 10_000, 1.0)
    leaving = finite_context(spectrum(head([1.0, 2.0], [3.0, 1.0])), 32.0, rho, 100, 1.0)
    wide = finite_context(spectrum(head([-1.0, -2.0])), 32.0, rho, 100, 1.0)
    few = finite_context(spectrum(head([2.0, 1.0])), 4096.0, rho, 100, 1.0)
    B = np.array([[1.0, 0.0], [0.5, 1.0]])
    sheared = ms.AttentionWeights(V=np.diag([2.0, 1.0]) @ np.linalg.inv(B.T), B=B)
    other = finite_context(spectrum(sheared), 32.0, rho, 100, 1.0)
    cases = {"follow V": leaving, "width": wide, "window": few, "way": early, "multiple": other}
    for word, found in cases.items():
        assert not found.in_range and word in found.why
    assert other.context == 0.0


def test_a_forecast_gives_it():
    f = forecast(head([2.0, 1.0]), 16.0, ms.sphere.equispaced(500))
    assert f.finite_context(64, 6.0) == finite_context(f.spectrum, 16.0, f.rho0, 64, 6.0)
    assert f.finite_context().n == 500 and f.finite_context().t == f.phases.crossing


def test_what_is_not_defined_or_nonsense_is_refused():
    rho = ms.Measure(ms.sphere.uniform(50, 4, seed=0))
    with pytest.raises(NotDefined):
        finite_context(spectrum(head([1.0, 1.0, 1.0, 0.0])), 16.0, rho, 100, 1.0)
    skew = ms.AttentionWeights(V=[[2.0, 1.0], [0.0, 1.0]], B=np.eye(2))
    with pytest.raises(NotDefined) as refused:
        finite_context(spectrum(skew), 16.0, law(2), 100, 1.0)
    assert len(str(refused.value)) < 200
    with pytest.raises(NotDefined):
        side_influence(spectrum(skew), 16.0, law(2))
    s = spectrum(head([2.0, 1.0]))
    for arguments in ((None, 16.0, law(2), 10, 1.0), (s, -1.0, law(2), 10, 1.0), (s, 1.0, "x", 10, 1.0)):
        with pytest.raises(InvalidInput):
            finite_context(*arguments)
    for n, t in ((1, 1.0), (2.5, 1.0), (10, -1.0), (10, math.nan)):
        with pytest.raises(InvalidInput):
            finite_context(s, 16.0, law(2), n, t)
    with pytest.raises(InvalidInput):
        FiniteContext(10, 1.0, "wide", 0.0, 0.0, "")
