"""Which way the transpose of attention is computed."""

import math

import pytest
import torch

from metastable.attention import adjoint
from metastable.attention.adjoint import FEWEST, attention_adjoint, columns_adjoint
from metastable.attention.backwards import Backwards


def problem(n, d=2, sharp=4.0, length=1.0):
    draw = torch.Generator().manual_seed(n)
    keys, g = (torch.randn(n, d, dtype=torch.float64, generator=draw) for _ in range(2))
    keys = length * keys / keys.norm(dim=1, keepdim=True)
    scores = sharp * keys @ keys.T - math.log(n)
    mean = torch.softmax(scores, 1) @ keys
    log_mass = torch.full((n,), -math.log(n), dtype=torch.float64)
    return Backwards(sharp * keys, keys, log_mass, torch.logsumexp(scores, 1), g, (g * mean).sum(1), mean)


@pytest.mark.parametrize(
    ("given", "ahead", "rtol", "series"),
    [
        (problem(600), None, 1e-8, "circle_adjoint"),
        (problem(600), None, None, None),
        (problem(600), None, 1e-13, None),
        (problem(600), 1, 1e-8, None),
        (problem(1500, d=3), None, 1e-8, "nearby_adjoint"),
        (problem(1500, d=3, sharp=300.0), None, 1e-8, "nearby_adjoint"),
        (problem(600, d=3, length=1.001), None, 1e-8, None),
        (problem(600, d=3), None, None, None),
        (problem(600, length=1.001), None, 1e-8, None),
        (problem(600, sharp=1e5), None, 1e-8, None),
        (problem(FEWEST[2] - 1), None, 1e-8, None),
        (problem(FEWEST[3] - 1, d=3), None, 1e-8, None),
        (problem(5000, d=3, sharp=35.0), None, 1e-8, "sphere_adjoint"),
        (problem(3000, d=3, sharp=35.0), None, None, None),
        (problem(3000, d=3, sharp=2e4), None, 1e-8, "nearby_adjoint"),
        (problem(600, d=4), None, 1e-8, None),
    ],
)
def test_series_are_taken_where_a_tolerance_allows_them(monkeypatch, given, ahead, rtol, series):
    taken = []
    for name in ("circle_adjoint", "sphere_adjoint", "nearby_adjoint"):
        found = getattr(adjoint, name)
        monkeypatch.setattr(adjoint, name, lambda *parts, n=name, f=found: taken.append(n) or f(*parts))
    by_query, by_key = attention_adjoint(given, ahead, rtol=rtol)
    assert taken == ([] if series is None else [series])
    if series:
        expected = attention_adjoint(given)
        off = by_key - expected[1]
        off = off - (off * given.keys).sum(1, keepdim=True) * given.keys
        assert float((by_query - expected[0]).abs().max()) < rtol
        assert float(off.abs().max()) < rtol * 10


@pytest.mark.parametrize(
    ("n", "d", "sharp"),
    [(50, 2, 4.0), (700, 2, 0.0), (700, 2, 300.0), (700, 2, 1e5), (300, 3, 9.0), (2003, 3, 1.0), (2003, 3, 90.0)],
)
def test_columns_have_the_transpose_of_rows(n, d, sharp):
    given, rtol = problem(n, d, sharp), 1e-8
    q, k, g, m = (part.T.contiguous().numpy() for part in (given.queries, given.keys, given.cotangent, given.mean))
    mass, log_z, s = given.log_mass.exp().numpy(), given.log_partition.numpy(), given.shift.numpy()
    found = columns_adjoint(q, k, mass, log_z, g, s, m, rtol)
    expected = attention_adjoint(given)
    off = [torch.from_numpy(mine.T.copy()) - theirs for mine, theirs in zip(found, expected, strict=True)]
    off[1] = off[1] - (off[1] * given.keys).sum(1, keepdim=True) * given.keys
    assert float(off[0].abs().max()) < rtol
    assert float(off[1].abs().max()) < rtol * (10 + sharp)


def test_masses_of_zero_are_for_all_pairs():
    given = problem(600, d=3)
    none = given._replace(log_mass=torch.where(torch.arange(600) < 8, -torch.inf, given.log_mass))
    for found, expected in zip(attention_adjoint(none, rtol=1e-8), attention_adjoint(none), strict=True):
        assert bool((found == expected).all())
