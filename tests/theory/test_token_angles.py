import math

import numpy as np
import pytest

import metastable as ms
from metastable.theory import spectrum
from metastable.theory.contraction import Push, Symmetric
from metastable.theory.token_angles import comparison, distance, token_angles
from random_heads import head
from weight_families import diagonal


@pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "oblique"])
@pytest.mark.parametrize(("seed", "d"), [(10, 2), (11, 3), (12, 4), (13, 5), (14, 3), (15, 4)])
def test_forced_tokens_stay_below_the_comparison(seed, d, symmetric):
    """x' = v_0(x) + a constant push, projected: an independent integration of single tokens."""
    rng = np.random.default_rng(seed)
    w = head(rng, d, symmetric)
    s = spectrum(w)
    system = comparison(s)
    if system is None:
        assert not symmetric and s.dimension > 1
        return
    M, B = w.M.numpy(), w.B.numpy()
    x0 = ms.sphere.uniform(12, d, seed=seed)
    limit = ms.theory.limit_map(w)(x0).numpy()
    force = rng.normal(size=d) * 0.2

    def velocity(x):
        y = x @ M.T / np.linalg.norm(x @ B, axis=1)[:, None] + force
        return y - (y * x).sum(1)[:, None] * x

    x, state, h = x0.numpy(), system.at(x0.numpy(), limit), 4e-3
    for _ in range(400):
        delta = force - (x @ force)[:, None] * x
        push = system.push(x, limit, delta, h)
        k1 = velocity(x)
        k2 = velocity(x + h / 2 * k1)
        k3 = velocity(x + h / 2 * k2)
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + velocity(x + h * k3))
        x = x / np.linalg.norm(x, axis=1)[:, None]
        ahead = system.push(x, limit, force - (x @ force)[:, None] * x, h)
        top = Push(*(np.maximum(getattr(push, p), getattr(ahead, p)) for p in ("size", "away", "lift", "turn")))
        state = system.advance(state, top, h)
        angle = np.arccos(np.clip((x * limit).sum(1), -1, 1))
        assert (angle <= state.total + 1e-5).all()
    certified = state.total < math.pi / 2
    assert certified.any()  # the comparison says something


def test_where_there_is_no_comparison():
    assert comparison(spectrum(diagonal(1.0, 1.0))) is None
    assert comparison(spectrum(ms.AttentionWeights(V=[[1.0, -1.0], [1.0, 1.0]], B=np.eye(2)))) is None
    assert isinstance(comparison(spectrum(diagonal(2.0, 1.0))), Symmetric)


def test_without_a_push_the_bound_is_the_orbit():
    w = diagonal(2.0, 0.5, 1.0)
    x0 = ms.sphere.uniform(40, 3, seed=2)
    times = np.linspace(0.0, 3.0, 7)
    limit = ms.theory.limit_map(w)(x0).numpy()
    path = ms.theory.zero_temperature(w, x0, times).numpy()
    orbits = np.arccos(np.clip((path * limit).sum(2), -1, 1))
    nothing = [Push(*4 * (np.zeros(40),))] * 6
    system, run = comparison(spectrum(w)), [(x, np.zeros(40)) for x in path[1:]]
    angles, found = token_angles(system, x0.numpy(), limit, orbits, np.diff(times), nothing, 2.0, run)
    assert found == 0 and np.allclose(angles, orbits, atol=1e-12)
    exact = ms.theory.distance_to_limit(w, x0, times).numpy()
    assert distance(angles, np.full(40, 1 / 40)) == pytest.approx(exact, abs=1e-9)


def test_a_token_beyond_its_bound_is_counted():
    """A push that is too small for what the run did: the bound goes on from where the token is."""
    w = diagonal(2.0, 1.0)
    start = np.array([[math.cos(1.5), math.sin(1.5)]])
    limit, moved = np.array([[1.0, 0.0]]), np.array([[math.cos(1.7), math.sin(1.7)]])
    orbits = np.array([[1.5], [1.4], [1.3]])
    still, run = [Push(*4 * (np.zeros(1),))] * 2, [(moved, np.array([0.3]))] * 2
    angles, found = token_angles(comparison(spectrum(w)), start, limit, orbits, np.ones(2), still, 1.0, run)
    assert found == 1 and angles[1, 0] == pytest.approx(1.7) and angles[2, 0] >= 1.7
