import math

import numpy as np
import pytest

import metastable as ms
from metastable.errors import InvalidInput
from metastable.theory import distance_to_limit, priori_bound, zero_temperature
from metastable.theory.laplace import cap_bound, cap_moment, uniform_cap
from metastable.theory.stability import posteriori_bound, synchronous_distance
from weight_families import diagonal


def test_it_lies_above_the_run_and_above_the_bound_along_it():
    rng = np.random.default_rng(5)
    B = np.eye(3) + 0.2 * rng.normal(size=(3, 3))
    w = ms.AttentionWeights(V=np.diag([1.0, 0.2, -0.4]) @ np.linalg.inv(B.T), B=B)
    x0 = ms.sphere.fibonacci(400)
    times = np.linspace(0, 0.6, 13)
    for beta in (50.0, 400.0):
        path = ms.solve(ms.SelfAttention(w, beta=beta), x0, t=0.6, times=times)
        run = posteriori_bound(w, beta, path)
        prior = priori_bound(w, beta, x0, run.L0)
        assert bool((prior(times) >= run.bound.clamp(max=2.0) * 0.99).all()) and float(prior(times).max()) <= 2.0
        orbits = zero_temperature(w, x0, times)
        for i in range(1, len(times)):
            assert synchronous_distance(path.measure(i), ms.Measure(orbits[i])) <= float(prior(times)[i])
        zero = distance_to_limit(w, x0, times)
        limit = ms.theory.limit(w, x0)
        truth = np.array([float(ms.wasserstein(path.measure(i), limit)) for i in (0, 6, 12)])
        assert (prior.to_limit(times, zero).numpy()[[0, 6, 12]] >= truth - 1e-9).all()
    assert float(prior(0.3)) < 0.5  # not trivial at low temperature


def test_it_shrinks_with_beta_for_dense_tokens():
    w = diagonal(0.5, 0.4)
    tokens = ms.sphere.equispaced(5000)
    bounds = [priori_bound(w, beta, tokens)(0.2) for beta in (1e2, 1e3, 1e5)]
    assert bounds[0] > bounds[1] > bounds[2]
    law = [math.sqrt(math.log(beta + 1) / beta) for beta in (1e3, 1e5)]
    assert bounds[1] / bounds[2] == pytest.approx(law[0] / law[1], rel=0.4)


def test_the_drift_grows_with_what_is_known_of_it():
    """A bound of |m - e| is larger for tokens that may have moved, and for later times."""
    prior = priori_bound(diagonal(2.0, 1.0), 200.0, ms.sphere.equispaced(500))
    values = [prior.laplace(0.0), prior.laplace(0.0, 0.05), prior.laplace(0.5, 0.05), prior.laplace(0.5, math.pi)]
    assert values == sorted(values) and values[0] < values[1] < values[2] and values[3] == pytest.approx(2.0)


def test_the_moment_of_caps_is_sharper_than_their_masses():
    for d, kappa in ((2, 100.0), (3, 40.0), (5, 1000.0)):
        angles = np.geomspace(1e-6, math.pi, 2000)
        moment = cap_moment(kappa, 2 * np.sin(angles / 2), uniform_cap(d, 1 - np.cos(angles)))
        exact = math.sqrt(2 * (1 - ms.theory.bessel_ratio(d, kappa)))  # sqrt of the second moment of uniform keys
        assert exact <= moment <= 0.6 * cap_bound(kappa, lambda h, d=d: uniform_cap(d, h))


def test_nonsense_is_a_sentence():
    w, x = diagonal(2.0, 1.0), ms.sphere.equispaced(10)
    for call in (
        lambda: priori_bound(None, 1.0, x),
        lambda: priori_bound(w, 0.0, x),
        lambda: priori_bound(w, 1.0, "x"),
        lambda: priori_bound(w, 1.0, x, L0="a"),
        lambda: priori_bound(w, 1.0, x)(-1.0),
    ):
        with pytest.raises(InvalidInput):
            call()
