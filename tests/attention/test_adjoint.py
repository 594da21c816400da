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
    shift = (g * (torch.softmax(scores, 1) @ keys)).sum(1)
    log_mass = torch.full((n,), -math.log(n), dtype=torch.float64)
    return Backwards(sharp * keys, keys, log_mass, torch.logsumexp(scores, 1), g, shift)


@pytest.mark.parametrize(
    ("given", "ahead", "rtol", "series"),
    [
        (problem(600), None, 1e-8, True),
        (problem(600), None, None, False),
        (problem(600), None, 1e-13, False),
        (problem(600), 1, 1e-8, False),
        (problem(600, d=3), None, 1e-8, False),
        (problem(600, length=1.001), None, 1e-8, False),
        (problem(600, sharp=1e5), None, 1e-8, False),
        (problem(FEWEST - 1), None, 1e-8, False),
    ],
)
def test_series_are_taken_on_the_circle_where_a_tolerance_allows_them(monkeypatch, given, ahead, rtol, series):
    taken = []
    found = adjoint.circle_adjoint
    monkeypatch.setattr(adjoint, "circle_adjoint", lambda *parts: taken.append(1) or found(*parts))
    by_query, by_key = attention_adjoint(given, ahead, rtol=rtol)
    assert bool(taken) == series
    if series:
        expected = attention_adjoint(given)
        turn = given[1].flip(1) * torch.tensor([-1.0, 1.0])
        assert float((by_query - expected[0]).abs().max()) < rtol
        assert float(((by_key - expected[1]) * turn).sum(1).abs().max()) < rtol * 10
