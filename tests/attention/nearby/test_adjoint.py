"""The transpose for a few thousand tokens on S^2, against all pairs and torch's derivatives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention.nearby.nearby_tokens import Transpose, sorted_tokens
from metastable.attention.backwards import Backwards
from metastable.attention.direct import adjoint_over_pairs
from metastable.attention.nearby import adjoint
from metastable.attention.nearby.adjoint import adjoint_sorted, forecast_adjoint, forecast_columns, nearby_adjoint

WEIGHTS = {
    "one": torch.eye(3).double(),
    "turned": torch.linalg.qr(torch.tensor([[1.0, 2.0, 0.3], [-0.5, 1.0, 0.9], [0.2, -1.0, 2.0]]).double())[0],
    "oblique": torch.tensor([[1.3, 0.7, -0.2], [0.1, 0.6, 0.5], [0.4, -0.3, 1.1]]).double(),
}


def problem(B, beta, seed, n=1003, spread=None):
    """Queries beta B^T y of tokens y on S^2, in no order, with masses of some decades."""
    draw = torch.Generator().manual_seed(seed)
    keys = torch.from_numpy(sorted_tokens(n, 3, seed, spread)[:3].T.copy())[torch.randperm(n, generator=draw)]
    log_mass = 3.0 * torch.randn(n, dtype=torch.float64, generator=draw) - 40.0
    queries, g = beta * keys @ B, torch.randn(n, 3, dtype=torch.float64, generator=draw)
    scores = queries @ keys.T + log_mass
    mean = torch.softmax(scores, 1) @ keys
    return Backwards(queries, keys, log_mass, torch.logsumexp(scores, 1), g, (g * mean).sum(1), mean)


def worst(given, found):
    """Largest errors in the units that are stated, less rounding, beside what is summed of weights."""
    expected, share = adjoint_over_pairs(given), torch.softmax(given.log_mass, 0)
    size, longest = given.cotangent.norm(dim=1) + given.shift.abs(), float(given.queries.norm(dim=1).max())
    weights = torch.softmax(given.queries @ given.keys.T + given.log_mass, 1)
    rounding = 1e-15 * (10.0 + longest)
    off = found[1] - expected[1]
    off = (off - (off * given.keys).sum(1, keepdim=True) * given.keys).norm(dim=1) / (1.0 + longest)
    by_key = (off - rounding * weights.T @ size) / (share * size.sum())
    return max(float(((found[0] - expected[0]).norm(dim=1) / size - rounding).max()), float(by_key.max()))


@pytest.mark.parametrize("B", WEIGHTS)
@pytest.mark.parametrize("beta", [0.1, 1.0, 8.0, 64.0, 2000.0])
@pytest.mark.parametrize(("rtol", "spread"), [(1e-4, None), (1e-8, None), (1e-11, None), (1e-8, 0.1), (1e-8, 1e-5)])
def test_it_is_the_transpose_to_its_tolerance(B, beta, rtol, spread):
    given = problem(WEIGHTS[B], beta, seed=int(10 * beta), spread=spread)
    assert worst(given, nearby_adjoint(given, forecast_adjoint(given, rtol), rtol)) < rtol


@pytest.mark.parametrize("beta", [1.0, 100.0])
def test_it_is_what_torch_finds(beta):
    """The derivative of sum_i <g_i, m_i> - s_i log Z_i with respect to queries and keys, s constant."""
    given = problem(WEIGHTS["oblique"], beta, seed=5, n=300)
    queries, keys = (part.clone().requires_grad_() for part in (given.queries, given.keys))
    scores = queries @ keys.T + given.log_mass
    value = (given.cotangent * (torch.softmax(scores, 1) @ keys)).sum()
    by_query, by_key = torch.autograd.grad(value, (queries, keys))
    found = nearby_adjoint(given, forecast_adjoint(given, 1e-10), 1e-10)
    off = found[1] - by_key
    off = off - (off * given.keys).sum(1, keepdim=True) * given.keys
    assert float((found[0] - by_query).abs().max()) < 1e-9
    assert float(off.abs().max()) < 1e-9 * (1 + beta)


@pytest.mark.parametrize(("beta", "n", "way"), [(1.0, 800, "harmonics"), (6.0, 160, "lists"), (50.0, 800, "lists")])
def test_gentle_scores_of_many_tokens_are_gathered(monkeypatch, beta, n, way):
    taken = []
    for name in ("adjoint_by_harmonics", "adjoint_by_lists"):
        found = getattr(adjoint, name)
        monkeypatch.setattr(adjoint, name, lambda *parts, n=name, f=found: taken.append(n) or f(*parts))
    keys = sorted_tokens(n, 3, seed=1)
    given = Transpose(keys, np.ascontiguousarray(beta * keys[:3]), seed=2)
    _, z, log_z, cotangent, shift = given.given
    way_and_cost = forecast_columns(keys[:3], keys[3], z, log_z, 1e-9)
    found = adjoint_sorted(keys[:3], keys[3], z, log_z, cotangent, shift, given.mean, way_and_cost, 1e-9)
    assert taken == [f"adjoint_by_{way}"] and max(given.errors(*found)) < 1e-9
