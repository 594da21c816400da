import math

import numpy as np
import pytest
import torch

import metastable as ms
from fuzz.bounds import case, random_case, truth
from metastable.errors import InvalidInput
from metastable.papers.concentration.families import commuting, sheared
from metastable.theory import forecast

G = sheared(0.5)


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_bounds_lie_above_the_simulation(seed):
    assert case(seed) is None


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1006, 1040))
def test_bounds_lie_above_the_simulation_in_more_cases(seed):
    assert case(seed) is None


def test_the_bound_follows_the_run_where_one_constant_gives_up():
    """G(.5), skewed tokens, beta = 256: within half of W2 until t = 5; with L_0 alone it ends three times above."""
    angles = 2 * math.pi * (np.arange(400) + 0.5) / 400
    density = 1 + 0.5 * np.cos(angles - 1) + 0.3 * np.sin(2 * angles)
    rho0 = ms.Measure(np.stack([np.cos(angles), np.sin(angles)], axis=1), mass=density)
    f = forecast(G, 256.0, rho0, deterministic=True)
    times = np.linspace(0.0, 5.0, 61)
    path = ms.solve(ms.SelfAttention(G, beta=256.0), rho0, t=5.0, times=times)
    target = ms.theory.limit(G, rho0)
    W = np.array([float(ms.wasserstein(path.measure(i), target)) for i in range(0, 61, 6)])
    bound = f.bound(path)
    ratio = bound.values.numpy()[::6] / W
    assert ratio.min() >= 1 - 1e-9 and ratio.max() < 1.5 and bound.unresolved == 0
    assert float((bound.zero + bound.drift)[-1]) > 3 * W[-1]
    assert bound.label == "rigorous bound for this run of 400 tokens"


def test_rare_frames():
    """A token that crosses between two saved times is found on the other side: its bound goes on from there."""
    f, times = random_case(17)
    path, W = truth(f, times)
    rare = f.bound(path)
    assert bool((rare.values.numpy() >= W - 1e-6).all())
    often = f.bound(truth(f, np.linspace(0.0, times[-1], 4 * len(times) - 3))[0])
    assert often.unresolved == 0
    assert rare.values.numpy() == pytest.approx(often.values.numpy()[::4], rel=0.15)


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
        (run(w=commuting()), "other weights"),
        (run(flow=ms.UnnormalizedAttention), "flow SelfAttention"),
    ):
        with pytest.raises(InvalidInput, match=word):
            f.bound(path)
    for nonsense in ("path", 3, [], x):
        with pytest.raises(InvalidInput, match="path must be a Path"):
            f.bound(nonsense)
