import json
import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import metastable as ms
from metastable.errors import InvalidInput, NotDefined
from metastable.theory import distance_to_limit, forecast, limit, spectrum
from metastable.theory.forecast import EFFECTIVE
from metastable.transport import wasserstein

I2 = np.eye(2)
B_G = np.array([[1.0, 0.5], [0.0, 1.0]])
G = ms.AttentionWeights(V=np.diag([2.0, 1.0]) @ np.linalg.inv(B_G.T), B=B_G)
C = ms.AttentionWeights(V=np.diag([1.0, 2.0]), B=np.diag([4.0, 1.0]))


def head(rng, d, symmetric=True):
    """Random weights with a gap of at least 0.3 and a dominant space of dimension 1 or 2."""
    B = rng.choice([1.0, 2.0]) * np.eye(d) + rng.choice([0.0, 0.3, 0.6]) * rng.normal(size=(d, d)) / math.sqrt(d)
    levels = np.sort(rng.uniform(-1, 1, size=d))[::-1]
    k = 1 if d == 2 or rng.random() < 0.6 else 2
    levels[:k] = levels[k] + rng.uniform(0.3, 1.2)
    Z = np.linalg.qr(rng.normal(size=(d, d)))[0] if symmetric else np.eye(d) + 0.4 * rng.normal(size=(d, d))
    M = Z @ np.diag(levels) @ np.linalg.inv(Z)
    return ms.AttentionWeights(V=M @ np.linalg.inv(B.T), B=B)


def tokens(rng, d, n):
    if rng.random() < 0.4 and d < 4:
        return ms.sphere.equispaced(n) if d == 2 else ms.sphere.fibonacci(n)
    if rng.random() < 0.5:
        return ms.sphere.von_mises_fisher(n, rng.normal(size=d), rng.uniform(0, 2), seed=int(rng.integers(1 << 30)))
    return ms.sphere.uniform(n, d, seed=int(rng.integers(1 << 30)))


def measured(w, beta, rho0, times):
    path = ms.solve(ms.SelfAttention(w, beta=beta), rho0, t=float(times[-1]), times=times, rtol=1e-6, atol=1e-8)
    target = limit(w, rho0)
    return path, np.array([float(wasserstein(path.measure(i), target)) for i in range(len(times))])


def check_bounds(seed, d, n):
    rng = np.random.default_rng(seed)
    w = head(rng, d, symmetric=rng.random() < 0.7)
    s = spectrum(w)
    if s.kind not in ("point pair", "subsphere"):
        return
    beta = float(np.exp(rng.uniform(0, math.log(400))))
    rho0 = tokens(rng, d, n)
    f = forecast(w, beta, rho0)
    times = np.linspace(0, float(rng.uniform(0.5, 4.0)) / f.c_local, 25)
    path, W = measured(w, beta, rho0, times)
    bound = f.bound(path)
    assert bool((bound.values.numpy() >= W - 1e-9).all())
    assert bool((f.priori_bound(times).numpy() >= W - 1e-9).all())
    safe = times <= f.times.safe
    if s.M.symmetric and f.n_eff >= EFFECTIVE:
        assert bool((f.safe_curve(times).numpy()[safe] >= W[safe]).all())
    assert float(bound.values[0]) == pytest.approx(W[0], abs=1e-7)  # no drift yet: the bound is attained


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**31 - 1), d=st.sampled_from([2, 3, 5]))
def test_bounds_lie_above_the_simulation(seed, d):
    check_bounds(seed, d, 120)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**31 - 1), d=st.sampled_from([2, 3, 5]))
def test_bounds_lie_above_the_simulation_in_200_cases(seed, d):
    check_bounds(seed, d, 120)


def random_forecast(seed):
    """A symmetric head with a gap of at least 0.3 and its tokens, in low dimension and at low temperature."""
    rng = np.random.default_rng(seed)
    d, n = int(rng.choice([2, 3, 5])), int(rng.choice([200, 400]))
    w = head(rng, d)
    beta = {2: math.exp(rng.uniform(2, 5.7)), 3: rng.uniform(4, n / 10), 5: rng.uniform(4, 12)}[d]
    rho0 = ms.sphere.uniform(n, d, seed=seed) if rng.random() < 0.6 or d == 5 else tokens(rng, d, n)
    return forecast(w, beta, rho0)


def prediction_error(seed):
    """Largest relative error of the curve inside its own range, and how far W2 fell there; None if no range."""
    f = random_forecast(seed)
    if f.valid_until <= 0:
        assert f.warnings or f.n_eff < EFFECTIVE
        return None
    times = np.linspace(0, f.valid_until, 13)
    _, W = measured(f.weights, f.beta, f.rho0, times)
    assert bool(f.in_range(times).all()) and not f.in_range(f.valid_until * 1.01)
    return float(np.abs(f.curve(times).numpy() / W - 1).max()), W[-1] / W[0]


def test_predicted_curve_within_its_range():
    results = [r for r in map(prediction_error, range(8)) if r is not None]
    assert len(results) >= 4
    assert max(error for error, _ in results) < 0.15
    assert np.median([fall for _, fall in results]) < 0.7  # the range is not a triviality near t = 0


@pytest.mark.slow
def test_predicted_curve_within_its_range_in_many_cases():
    # the thresholds of the range were chosen on the seeds 100-159: these are others
    results = [r for r in map(prediction_error, range(1000, 1060)) if r is not None]
    assert len(results) >= 30
    assert max(error for error, _ in results) < 0.15
    assert np.median([fall for _, fall in results]) < 0.6


def test_range_reaches_the_floor_or_says_why_not():
    # the floor: sqrt(log(beta+1)/beta), which the zero-temperature distance reaches at times.concentration
    forecasts = [f for f in map(random_forecast, range(30)) if f.n_eff >= EFFECTIVE and f.defect <= 0.35]
    assert len(forecasts) >= 15
    early = [f for f in forecasts if f.valid_until < f.times.concentration]
    assert len(early) <= 0.3 * len(forecasts)
    for f in forecasts:
        assert f.valid_until > 0 and f.spectrum.gap >= 0.3 - 1e-9
    reasons = ("first order", "acts back", "single token", "run out of tokens", "gather in clusters")
    for f in early:
        assert any(word in f.range_ends for word in reasons)
        assert f.range_ends in f.to_dict()["range_ends"] and any(f.range_ends in row[2] for row in f.table())


def test_sampled_prediction_reproduces_the_mean_field():
    # R9: mean field, G(.5), uniform, beta = 64; 512 of 2000 equispaced tokens are followed
    f = forecast(G, 64.0, ms.sphere.equispaced(2000), deterministic=True)
    curve = f.curve([0.0, 1.0, 2.0, 3.0])
    assert curve[1:].tolist() == pytest.approx([0.5993592086, 0.3916965025, 0.248758843], rel=0.01)
    # and it is better than zero temperature, which is 4.6% off at t = 3
    assert float(curve[3]) == f.curve(3.0)
    assert abs(f.zero_temperature_curve(3.0) - 0.248758843) > 0.01


def test_times_of_the_three_cases():
    equal = forecast(ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=I2), 64.0, ms.sphere.equispaced(400))
    assert equal.times.exit == math.inf and equal.times.case.endswith("E on top of V")
    assert equal.times.crossing == pytest.approx(0.5 * math.log(64.0), rel=0.02)
    generic = forecast(G, 64.0, ms.sphere.equispaced(400))
    delta = math.hypot(1, 0.5) - 1
    assert generic.times.exit_mean_field == pytest.approx(64.0 * delta)
    assert generic.times.exit == pytest.approx(math.log(400) - 1)
    commuting = forecast(C, 100.0, ms.sphere.uniform(600, 2))
    assert commuting.times.exit_tokens == math.inf
    assert commuting.times.exit == pytest.approx(11.15, abs=2)
    assert commuting.terminal.rate == pytest.approx(1.0)
    assert abs(float(commuting.terminal.space[1, 0])) == pytest.approx(1.0)


def test_concentration_time_solves_its_equation():
    f = forecast(G, 256.0, ms.sphere.equispaced(800))
    level = math.sqrt(math.log(257.0) / 256.0)
    assert distance_to_limit(G, f.rho0, f.times.concentration) == pytest.approx(level, rel=1e-3)


def crossing_and_exit(n, beta, seed):
    """(t_x, exit) of a simulation of C: median width = (beta B_1)^{-1/2}, median |offset| of a cluster = 0.5."""
    x0 = ms.sphere.uniform(n, 2, seed=seed)
    times = np.linspace(0, 16, 161)
    path = ms.solve(ms.SelfAttention(C, beta=beta), x0, t=16.0, times=times, rtol=1e-6, atol=1e-8)
    tangent = (path.points[:, :, 1] / path.points[:, :, 0]).abs()
    width = tangent.median(dim=1).values.numpy()
    side = torch.sign(x0[:, 0])
    offset = np.array([max(abs(float(x[side == s, 1].median())) for s in (1.0, -1.0)) for x in path.points])

    def first(event):
        return times[np.nonzero(event)[0][0]] if event.any() else math.inf

    return first(width < (beta * 4.0) ** -0.5), first(offset > 0.5)


def test_crossing_and_exit_against_one_simulation():
    x0 = ms.sphere.uniform(300, 2, seed=3)
    f = forecast(C, 50.0, x0)
    crossing, leaving = crossing_and_exit(300, 50.0, 3)
    assert f.times.crossing == pytest.approx(crossing, rel=0.15)
    assert f.times.exit == pytest.approx(leaving, abs=3.0)


@pytest.mark.slow
def test_crossing_and_exit_medians_over_seeds():
    for n, beta in ((600, 100.0), (300, 50.0)):
        runs = [crossing_and_exit(n, beta, seed) for seed in range(7)]
        forecasts = [forecast(C, beta, ms.sphere.uniform(n, 2, seed=seed)).times for seed in range(7)]
        crossing = np.median([r[0] for r in runs])
        assert np.median([f.crossing for f in forecasts]) == pytest.approx(crossing, rel=0.1)
        assert np.median([f.exit for f in forecasts]) == pytest.approx(np.median([r[1] for r in runs]), abs=2.0)


@pytest.mark.slow
def test_tokens_leave_when_the_tail_is_empty():
    # N4: G(.5), equispaced, beta = 1024: W2 is smallest at t = 5.25 for n = 500
    x0 = ms.sphere.equispaced(500)
    f = forecast(G, 1024.0, x0, deterministic=True)
    times = np.linspace(0, 9, 37)
    _, W = measured(G, 1024.0, x0, times)
    assert f.times.exit == pytest.approx(times[int(np.argmin(W))], abs=2.0)


def test_out_of_range_is_said():
    few = forecast(ms.AttentionWeights(V=np.diag([2.0, 1.0, 0.5]), B=np.eye(3)), 200.0, ms.sphere.uniform(100, 3))
    assert few.n_eff < 10 and few.valid_until == 0 and not few.in_range(0.1)
    assert any("cannot emulate" in w for w in few.warnings)
    warm = forecast(ms.AttentionWeights(V=np.diag([2.0, 1.0, 0.5]), B=np.eye(3)), 1.0, ms.sphere.uniform(400, 3))
    assert any("not low temperature" in w for w in warm.warnings) and warm.valid_until == 0
    skew = forecast(ms.AttentionWeights(V=[[2.0, 0.7], [0.0, 1.0]], B=I2), 50.0, ms.sphere.equispaced(300))
    assert any("not symmetric" in w for w in skew.warnings) and skew.valid_until == 0
    assert skew.curve(1.0) > 0


def test_kinds_without_a_limit():
    turn = forecast(ms.AttentionWeights(V=[[1.0, -1.0], [1.0, 1.0]], B=I2), 50.0, ms.sphere.equispaced(100))
    with pytest.raises(NotDefined, match="comoving_target"):
        turn.curve(1.0)
    assert turn.terminal.kind == "rotation" and turn.terminal.frequency == pytest.approx(1.0)
    json.dumps(turn.to_dict([0.0, 1.0]), allow_nan=False)
    whole = forecast(ms.AttentionWeights(V=np.eye(3), B=np.eye(3)), 30.0, ms.sphere.fibonacci(200))
    assert whole.times.clustering == pytest.approx(0.5 * math.log(200) / 0.72, rel=0.15)
    json.dumps(whole.to_dict([0.0, 1.0]), allow_nan=False)


def test_dictionary_and_table():
    f = forecast(G, 64.0, ms.sphere.equispaced(200))
    record = json.loads(json.dumps(f.to_dict([0.0, 1.0]), allow_nan=False))
    assert record["rates"]["c"] == pytest.approx(0.5)
    assert record["curves"]["predicted"][0] == pytest.approx(f.zero_temperature_curve(0.0))
    assert {row[0] for row in f.table()} >= {"c", "C", "n_eff", "t crossing", "t exit", "terminal", "valid until"}
    assert f.optimum[0] > 0 and len(f.assumptions) == 5
    internal = f.bound(t=1.0)
    assert internal.times[-1] == 1.0 and bool((internal.values >= internal.zero).all())


def test_refusals():
    x = ms.sphere.equispaced(10)
    with pytest.raises(InvalidInput, match="beta > 0"):
        forecast(G, 0.0, x)
    with pytest.raises(InvalidInput, match="beta must be finite"):
        forecast(G, math.nan, x)
    with pytest.raises(InvalidInput, match="dimension 3"):
        forecast(G, 1.0, ms.sphere.uniform(5, 3))
    with pytest.raises(InvalidInput, match="invertible B"):
        forecast(ms.AttentionWeights(V=I2, B=np.diag([1.0, 0.0])), 1.0, x)
    with pytest.raises(InvalidInput, match="not isolated"):
        forecast(ms.AttentionWeights(V=np.diag([1.0, 1.0 - 3e-6]), B=I2), 1.0, x)
    with pytest.raises(InvalidInput, match="t must be finite"):
        forecast(G, 10.0, x).curve(-1.0)


def test_multiples_of_the_identity_are_told_in_sane_words():
    x = ms.sphere.equispaced(60)
    same = forecast(ms.AttentionWeights(V=I2, B=I2), 100.0, x)
    zero = forecast(ms.AttentionWeights(V=0 * I2, B=np.diag([-1.0, 2.0])), 100.0, x)
    for f in (same, zero):
        rows = {name: (value, meaning) for name, value, meaning in f.table()}
        assert rows["gap"][0] == rows["c"][0] == "none" and "identity" in rows["gap"][1]
        assert f.C == 0 and rows["C"][0] == "0"
        assert f.optimum == (0.0, pytest.approx(math.sqrt(math.log(101.0) / 100.0)))
        assert f.curve(0.0) == 0.0 and not any("inf" in sentence for sentence in f.assumptions)
        json.dumps(f.to_dict([0.0, 1.0]), allow_nan=False)
    assert "nothing moves" in zero.terminal.sentence and zero.curve([0.0, 2.0]).tolist() == [0.0, 0.0]


def test_huge_weights_are_one_sentence():
    huge = np.diag([1e200, 1e200])
    with pytest.raises(InvalidInput, match="finite entries"):
        forecast(ms.AttentionWeights(V=huge, B=huge), 1.0, ms.sphere.equispaced(10))
    large = np.diag([2e150, 1e150])
    s = spectrum(ms.AttentionWeights(V=large, B=large))
    assert s.M.symmetric and s.normality_defect == 0 and s.gap == pytest.approx(3e300)


def test_no_range_means_in_range_nowhere():
    x = ms.sphere.equispaced(300)
    skew = forecast(ms.AttentionWeights(V=[[2.0, 0.7], [0.0, 1.0]], B=I2), 50.0, x)
    same = forecast(ms.AttentionWeights(V=I2, B=I2), 50.0, x)
    turn = forecast(ms.AttentionWeights(V=[[1.0, -1.0], [1.0, 1.0]], B=I2), 50.0, x)
    for f in (skew, same, turn):
        assert f.valid_until == 0 and f.in_range(0.0) is False and not bool(f.in_range([0.0, 1.0]).any())
    good = forecast(ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=I2), 50.0, x)
    assert good.in_range(0.0) is True


def test_no_safe_time_where_no_curve_can_be_read():
    w = ms.AttentionWeights(V=-np.diag([2.0, 1.0]), B=-I2)
    x = ms.sphere.von_mises_fisher(300, [0.5, 1.0], 20.0, seed=0)
    f = forecast(w, 64.0, x)
    assert any("read no curve" in sentence for sentence in f.warnings) and f.times.safe == 0
    times = np.array([0.0, 2.0])
    _, W = measured(w, 64.0, x, times)
    assert f.safe_curve(2.0) < W[1]  # and rightly so
    assert f.safe_curve(0.0) >= W[0]


def test_bound_refuses_a_run_of_something_else():
    x = ms.sphere.equispaced(20)
    f = forecast(G, 8.0, x)

    def run(w=G, beta=8.0, start=x, flow=ms.SelfAttention):
        return ms.solve(flow(w, beta=beta), start, t=0.2, times=[0.0, 0.1, 0.2])

    assert len(f.bound(run()).values) == 3
    assert len(f.bound(run(start=ms.Measure(x, dtype=torch.float32))).values) == 3
    weighted = ms.Measure(x, mass=np.arange(1.0, 21.0))
    for path, word in (
        (run(beta=9.0), "beta = 8, but the path was run at 9"),
        (run(start=ms.sphere.equispaced(21)), "20 tokens in dimension 2, but the path holds 21"),
        (run(start=ms.sphere.uniform(20, 2)), "must start from the tokens"),
        (run(start=weighted), "must start from the tokens"),
        (run(w=C), "other weights"),
        (run(flow=ms.UnnormalizedAttention), "flow SelfAttention"),
    ):
        with pytest.raises(InvalidInput, match=word):
            f.bound(path)
