"""Times and ends of the phases against simulations, of clusters that attend themselves or their antipodes (C4)."""

import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.papers.concentration.families import plain, sheared
from metastable.theory import distance_to_limit, forecast, phase_times, spectrum, terminal
from metastable.theory.rates import rates
from random_heads import measured

I2 = np.eye(2)
G = sheared(0.5)
C = ms.AttentionWeights(V=np.diag([1.0, 2.0]), B=np.diag([4.0, 1.0]))
LEAVES = ms.AttentionWeights(V=np.diag([-1.0, -2.0]), B=np.diag([-3.0, -1.0]))
PAIR_STAYS = ms.AttentionWeights(V=np.diag([-1.0, -2.0]), B=-I2)
MEETS = ms.AttentionWeights(V=np.diag([-1.0, 2.0]), B=np.diag([-3.0, 0.2]))
TURNS_BACK = ms.AttentionWeights(V=np.diag([-1.0, -2.0]), B=np.diag([-3.0, 0.5]))
WIDE = ms.AttentionWeights(V=I2, B=np.diag([-1.0, -2.0]))


def end_of(w, beta, x, t):
    return ms.solve(ms.SelfAttention(w, beta=beta), x, t=t, rtol=1e-6, atol=1e-8).points[-1]


def outside(points, space):
    """Mean squared distance from a space, 1 - |P c|^2."""
    return float((1 - ((points @ space) ** 2).sum(1)).mean())


def exit_of(w, beta, x, e, t):
    """First time at which half the tokens of one of the two clusters are more than 0.5 away from +-e, after 2."""
    times = np.linspace(0, t, 161)
    path = ms.solve(ms.SelfAttention(w, beta=beta), x, t=t, times=times, rtol=1e-6, atol=1e-8)
    side = torch.sign(x @ e)
    for time, points in zip(times, path.points, strict=True):
        off = max(float((1 - (points[side == s] @ e) ** 2).median()) for s in (1.0, -1.0))
        if time > 2 and off > 0.25:
            return time
    return math.inf


def test_symmetric_laws_cannot_tell_the_weights_from_their_negatives():
    x = ms.sphere.equispaced(60)
    opposite = ms.AttentionWeights(V=-LEAVES.V, B=-LEAVES.B)
    assert torch.allclose(end_of(LEAVES, 20.0, x, 2.0), end_of(opposite, 20.0, x, 2.0), atol=1e-6)
    f, g = forecast(LEAVES, 20.0, x), forecast(opposite, 20.0, x)
    assert f.c == g.c and f.times.crossing == pytest.approx(g.times.crossing)
    assert torch.allclose(f.terminal.space.abs(), g.terminal.space.abs())


def test_pair_leaves_for_the_bottom_of_V():
    x = ms.sphere.uniform(400, 2, seed=0)
    f = forecast(LEAVES, 64.0, x)
    assert f.spectrum.attends == "antipode" and not f.spectrum.assumptions[-1].holds
    assert "log beta" in f.spectrum.assumptions[-1].sentence
    assert f.times.exit == pytest.approx(exit_of(LEAVES, 64.0, x, f.spectrum.M.space[:, 0], 16.0), abs=2.0)
    end = end_of(LEAVES, 64.0, x, 20.0)
    assert outside(end, f.terminal.space) < 1e-5 and f.terminal.eigenvalue == pytest.approx(-2.0)
    assert float(torch.linalg.vector_norm(end.mean(0))) < 0.2  # still two clusters
    assert f.terminal.rate == rates(LEAVES).terminal == pytest.approx(1.0)


def test_pair_on_the_bottom_of_V_stays():
    x = ms.sphere.uniform(400, 2, seed=0)
    f = forecast(PAIR_STAYS, 64.0, x)
    assert f.times.exit == math.inf and f.spectrum.assumptions[-1].holds
    assert abs(float(f.terminal.space[1, 0])) == pytest.approx(1.0)
    assert outside(end_of(PAIR_STAYS, 64.0, x, 30.0), f.spectrum.M.space) < 1e-9


def test_pair_meets_on_the_top_of_V_when_that_is_larger():
    x = ms.sphere.uniform(400, 2, seed=0)
    f = forecast(MEETS, 64.0, x)
    assert f.times.exit == pytest.approx(exit_of(MEETS, 64.0, x, f.spectrum.M.space[:, 0], 16.0), abs=2.5)
    end = end_of(MEETS, 64.0, x, 18.0)
    assert outside(end, f.terminal.space) < 1e-4 and "meet" in f.terminal.sentence
    assert float(torch.linalg.vector_norm(end.mean(0))) > 0.99  # one cluster


@pytest.mark.parametrize("seed", range(6))
def test_random_commuting_heads(seed):
    rng = np.random.default_rng(seed)
    d = 2 + seed % 2
    while True:
        v, b = rng.uniform(-2, 2, d), rng.uniform(-3, -0.2, d)
        m = np.sort(v * b)
        size = np.sort(np.abs(v))
        top = int(np.argmax(v * b))
        fast = v[top] + np.abs(np.delete(v, top)).max()  # growth of the fastest offset
        if m[-1] - m[-2] > 0.8 and v[top] < -0.3 and size[-1] - size[-2] > 0.4 and abs(fast) > 0.6:
            break
    Z = np.linalg.qr(rng.normal(size=(d, d)))[0]
    w = ms.AttentionWeights(V=Z @ np.diag(v) @ Z.T, B=Z @ np.diag(b) @ Z.T)
    x = ms.sphere.uniform(300, d, seed=seed)
    f = forecast(w, 48.0 if d == 2 else 20.0, x)
    assert math.isinf(f.times.exit) == (fast < 0)
    horizon = 20.0 if fast < 0 else f.times.exit + 10 / fast + 10 / f.terminal.rate
    end = end_of(w, f.beta, x, horizon)
    assert outside(end, f.terminal.space) < 0.01
    together = float(torch.linalg.vector_norm(end.mean(0))) > 0.9
    assert together == (f.terminal.eigenvalue > 0)


def test_what_has_no_formula_is_out_of_range_in_words():
    x = ms.sphere.uniform(300, 2, seed=0)
    back = forecast(TURNS_BACK, 64.0, x)
    assert back.terminal.kind == "open" and "out of range" in back.terminal.sentence
    assert back.terminal.space.shape == (2, 0) and math.isnan(back.terminal.rate)
    end = end_of(TURNS_BACK, 64.0, x, 12.0)
    assert 0.1 < outside(end, torch.eye(2, dtype=torch.float64)[:, :1]) < 0.9  # indeed neither e1 nor e2
    wide = forecast(WIDE, 64.0, x)
    assert math.isnan(wide.times.exit) and "keep a width" in wide.times.case
    one_side = forecast(LEAVES, 64.0, x[x[:, 0] > 0])
    assert math.isnan(one_side.times.exit) and "one side is empty" in one_side.times.case
    assert one_side.terminal.kind == "open"
    tie = forecast(ms.AttentionWeights(V=np.diag([-1.0, 1.0]), B=np.diag([-2.0, 1.5])), 64.0, x)
    assert tie.terminal.kind == "open"
    for f in (back, wide, one_side, tie):
        assert f.to_dict()["terminal"]["rate"] is None and "out of range" in dict(enumerate(f.table()[-1]))[2]


def test_repulsive_values_have_no_terminal_space():
    # both eigenvalues of V are negative: nothing gathers, and the law rests far from the top of V
    w = ms.AttentionWeights(V=[[-0.517, -0.191], [-0.075, -0.336]], B=[[1.08, -0.365], [-0.351, 0.733]])
    x = ms.sphere.uniform(200, 2, seed=0)
    f = forecast(w, 195.7, x)
    assert not f.spectrum.delta_vanishes and f.terminal.kind == "open" and "keep a width" in f.terminal.sentence
    top = f.spectrum.V.space
    assert outside(end_of(w, 195.7, x, 40.0), top) > 0.2


@pytest.mark.parametrize("given", [(None, 2.0), ("w", 2.0), (spectrum(G), None), (spectrum(G), math.inf)])
def test_what_has_no_times(given):
    with pytest.raises(InvalidInput):
        phase_times(*given, ms.sphere.equispaced(5))
    with pytest.raises(InvalidInput):
        phase_times(spectrum(G), 2.0, "tokens")
    with pytest.raises(InvalidInput):
        terminal(None)


def test_times_of_the_three_cases():
    equal = forecast(plain(), 64.0, ms.sphere.equispaced(400))
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
