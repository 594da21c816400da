import math

import numpy as np
import pytest
import torch

from metastable import sphere
from metastable.errors import InvalidInput
from metastable.flows import AxisymmetricAttention, SelfAttention, UnnormalizedAttention
from metastable.solve import solve
from metastable.weights import AttentionWeights


def on_parallels(u, d, seed=0):
    """Every overlap as a ring of tokens: equispaced for d <= 3, else an octahedron, exact to degree 3."""
    side = np.sqrt(1 - u * u)
    if d == 2:
        ring = np.array([[1.0], [-1.0]])
    elif d == 3:
        ring = sphere.equispaced(64).numpy()
    else:
        ring = np.concatenate([np.eye(d - 1), -np.eye(d - 1)])
    rows = [np.concatenate([np.full((len(ring), 1), a), b * ring], axis=1) for a, b in zip(u, side, strict=True)]
    return np.concatenate(rows), len(ring)


def as_tokens(u):
    return torch.from_numpy(np.stack([u, np.sqrt(1 - u * u)], axis=1))


CASES = [(2, 0.0, 1e-14), (2, 0.9, 1e-14), (2, 5.0, 1e-13), (3, 0.9, 1e-14), (3, 5.0, 1e-12), (6, 0.0, 1e-14)]


@pytest.mark.parametrize(("d", "beta", "digits"), [*CASES, (6, 0.01, 1e-8)])
@pytest.mark.parametrize("normalized", [True, False])
def test_the_field_is_that_of_tokens_on_whole_parallels(d, beta, digits, normalized):
    rng = np.random.default_rng(d)
    u, mass = rng.uniform(-1, 1, 7), rng.random(7)
    mass /= mass.sum()
    points, count = on_parallels(u, d)
    w = AttentionWeights(V=np.eye(d), B=np.eye(d))
    flow = (SelfAttention if normalized else UnnormalizedAttention)(w, beta, rtol=None)
    full = flow.velocity(0.0, points, np.repeat(mass / count, count))[::count, 0].numpy()
    reduced = AxisymmetricAttention(d, beta, normalized).velocity(0.0, as_tokens(u), torch.from_numpy(mass))
    assert reduced[:, 0].numpy() == pytest.approx(full, abs=digits * math.exp(beta))


def test_a_run_in_six_dimensions_is_that_of_many_tokens():
    """Rings of turned cross-polytopes, exact to degree three: what is left is below beta^4/24 = 1.6e-4."""
    d, beta, u = 6, 0.25, np.array([-0.6, 0.1, 0.5, 0.8])
    rng = np.random.default_rng(3)
    turned = [np.linalg.qr(rng.normal(size=(d - 1, d - 1)))[0] for _ in range(12)]
    ring = np.concatenate([sign * Q for Q in turned for sign in (1, -1)])
    points = np.concatenate([np.c_[np.full(len(ring), a), math.sqrt(1 - a * a) * ring] for a in u])
    full = solve(SelfAttention(AttentionWeights(V=np.eye(d), B=np.eye(d)), beta), points, 1.5).end.points[:, 0]
    reduced, another = (
        solve(AxisymmetricAttention(k, beta), as_tokens(u), 1.5).end.points[:, 0].numpy() for k in (d, d + 1)
    )
    found = full.reshape(4, -1).mean(1).numpy()
    assert found == pytest.approx(reduced, abs=1.6e-4)
    assert np.abs(found - another).max() > 1e-3  # one dimension more is seen


def test_it_says_what_it_is():
    flow = AxisymmetricAttention(4, 0.5, normalized=False)
    assert flow.describe() == {"flow": "AxisymmetricAttention", "dimension": 4, "beta": 0.5, "normalized": False}
    assert repr(flow) == "AxisymmetricAttention(dimension=4, beta=0.5)"


@pytest.mark.parametrize("bad", [None, "3", [], 1j, math.nan, 10**400, -1, 2**63, np.ones(2), object()])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_malformed_flows_are_sentences(bad, place):
    given = [3, 1.0, True]
    given[place] = bad
    with pytest.raises(InvalidInput) as refused:
        AxisymmetricAttention(*given)
    assert len(str(refused.value)) < 200
