"""Which way the transpose of attention is computed."""

import math

import pytest
import torch

from metastable.attention import adjoint
from metastable.attention.adjoint import FEWEST, attention_adjoint
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
        (problem(600, d=3), None, 1e-8, None),
        (problem(600, length=1.001), None, 1e-8, None),
        (problem(600, sharp=1e5), None, 1e-8, None),
        (problem(FEWEST[2] - 1), None, 1e-8, None),
        (problem(FEWEST[3], d=3), None, 1e-8, "sphere_adjoint"),
        (problem(FEWEST[3], d=3), None, None, None),
        (problem(FEWEST[3], d=3, sharp=2e4), None, 1e-8, None),
        (problem(FEWEST[3], d=4), None, 1e-8, None),
    ],
)
def test_series_are_taken_where_a_tolerance_allows_them(monkeypatch, given, ahead, rtol, series):
    taken = []
    for name in ("circle_adjoint", "sphere_adjoint"):
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
