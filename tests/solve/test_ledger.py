"""Derivatives with respect to weights are added up by head and by stretch."""

import torch

import metastable as ms
from metastable.flows.pullback import HeadCotangent
from metastable.solve.ledger import Ledger


def head():
    return ms.AttentionWeights(V=torch.eye(2), B=torch.eye(2))


def ledger(flow):
    points = ms.sphere.uniform(4, 2, seed=1)
    return Ledger(flow.pullback(0.0, points, torch.full((4,), 0.25).double()), points)


ONE = HeadCotangent(torch.ones(2, 2).double(), 2 * torch.ones(2, 2).double(), 3.0)


def test_one_head_has_matrices_and_a_number():
    book = ledger(ms.SelfAttention(head(), 1.0))
    book.add(0.3, [(ONE,), (ONE,)])
    V, B, beta = book.totals()
    assert V.shape == B.shape == (2, 2) and float(V[0, 0]) == 2.0 and float(B[0, 0]) == 4.0 and beta == 6.0


def test_a_stretch_of_a_schedule_gets_what_falls_into_it():
    layers = ms.Schedule.layers([head()] * 3, 3.0)
    book = ledger(ms.SelfAttention(layers, 1.0))
    book.add(1.5, [(ONE,)])
    V, _, beta = book.totals()
    assert V.shape == (3, 2, 2) and V[:, 0, 0].tolist() == [0.0, 1.0, 0.0] and beta == 3.0


def test_heads_are_stacked_where_they_are_alike():
    layers = ms.Schedule.layers([head()] * 3, 3.0)
    alike = ledger(ms.MultiHead([ms.SelfAttention(head(), 1.0), ms.UnnormalizedAttention(head(), 2.0)]))
    V, _, beta = alike.totals()
    assert V.shape == (2, 2, 2) and beta.shape == (2,)
    unlike = ledger(ms.MultiHead([ms.SelfAttention(head(), 1.0), ms.SelfAttention(layers, 2.0)]))
    V, _, _ = unlike.totals()
    assert [m.shape for m in V] == [(2, 2), (3, 2, 2)]


def test_a_flow_without_weights_has_none():
    assert ledger(ms.ZeroTemperature(head())).totals() == (None, None, None)
