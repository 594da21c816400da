import math

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import metastable as ms
from metastable.errors import InvalidInput
from metastable.papers.concentration.families import commuting, sheared
from metastable.theory import forecast, spectrum
from metastable.theory.validity import LEAST_EFFECTIVE_TOKENS
from random_heads import head, measured, tokens

G = sheared(0.5)


def check_bounds(seed, d, n):
    rng = np.random.default_rng(seed)
    w = head(rng, d, symmetric=rng.random() < 0.7)
    s = spectrum(w)
    assume(s.kind in ("point pair", "subsphere"))
    beta = float(np.exp(rng.uniform(0, math.log(400))))
    rho0 = tokens(rng, d, n)
    f = forecast(w, beta, rho0)
    times = np.linspace(0, float(rng.uniform(0.5, 4.0)) / f.c_local, 25)
    path, W = measured(w, beta, rho0, times)
    bound = f.bound(path)
    assert bool((bound.values.numpy() >= W - 1e-9).all())
    assert bool((f.priori_bound(times).numpy() >= W - 1e-9).all())
    safe = times <= f.times.safe
    if s.M.symmetric and f.n_eff >= LEAST_EFFECTIVE_TOKENS:
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
