"""Heads of low rank taken together against the same heads taken one by one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metastable as ms
from metastable.flows import multihead, stacked_heads
from metastable.flows.driven import DrivenAttention
from metastable.flows.stacked_heads import StackedHeads, stackable

D = 8


def factored(seed, rank=3, width=2):
    g = torch.Generator().manual_seed(seed)
    q, k, v, o = (torch.randn(r, D, generator=g, dtype=torch.float64) for r in (rank, rank, width, width))
    return ms.AttentionWeights.from_qkv(q, k, v, o.T)


def tokens(seed, n=9):
    g = torch.Generator().manual_seed(seed)
    return ms.Measure(ms.sphere.uniform(n, D, seed=g), torch.rand(n, generator=g, dtype=torch.float64) + 0.1)


def one_by_one(flow, rho):
    return flow.factor * sum(head.drift(0.0, *rho).vector for head in flow.heads)


@pytest.mark.parametrize("combine", ["sum", "mean"])
@given(seed=st.integers(0, 10**6), n=st.integers(1, 20), heads=st.integers(2, 5), with_field=st.booleans())
def test_heads_together_are_the_heads_one_by_one(combine, seed, n, heads, with_field):
    fields = torch.randn(heads, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    given_fields = [fields[h] if with_field and h != 1 else None for h in range(heads)]
    alone = [ms.SelfAttention(factored(seed + h), 0.4 * h, field=given_fields[h]) for h in range(heads)]
    flow, rho = ms.MultiHead(alone, combine), tokens(seed, n)
    assert stackable(flow.heads) == flow.heads
    drift, expected = flow.drift(0.0, *rho), one_by_one(flow, rho)
    assert float((drift.vector - expected).abs().max()) <= 1e-13 * (1 + float(expected.abs().max()))
    assert drift.rate == pytest.approx(flow.factor * sum(h.drift(0.0, *rho).rate for h in alone), rel=1e-14)


def test_a_strong_field_overflows_nothing():
    flow = ms.MultiHead([ms.SelfAttention(factored(h), 2.0, field=900.0 * torch.eye(D)[h]) for h in range(3)])
    rho = tokens(4)
    assert float((flow.drift(0.0, *rho).vector - one_by_one(flow, rho)).abs().max()) < 1e-12


def test_float32_tokens_stay_float32_and_float64_ones_keep_their_digits():
    flow = ms.MultiHead([ms.SelfAttention(factored(h), 1.5, field=torch.ones(D)) for h in range(3)])
    rho = tokens(7)
    narrow = flow.drift(0.0, rho.points.float(), rho.mass.float()).vector
    expected = one_by_one(flow, rho)
    assert narrow.dtype == torch.float32
    assert float((narrow - expected).abs().max()) < 2e-6 * float(expected.abs().max())
    assert float((flow.drift(0.0, *rho).vector - expected).abs().max()) < 1e-13


@pytest.mark.parametrize(
    "other",
    [
        ms.SelfAttention(factored(1, rank=2), 1.0),
        ms.SelfAttention(factored(1, width=3), 1.0),
        ms.SelfAttention(ms.AttentionWeights(V=torch.eye(D), B=torch.eye(D)), 1.0),
        ms.SelfAttention(ms.Schedule(lambda t: factored(1)), 1.0),
        ms.SelfAttention(factored(1), 1.0, kernel="dense"),
        ms.SelfAttention(factored(1), 1.0, rtol=1e-6),
        ms.UnnormalizedAttention(factored(1), 1.0),
    ],
    ids=["rank", "width", "dense weights", "schedule", "kernel", "rtol", "unnormalised"],
)
def test_unequal_heads_are_taken_one_by_one(other):
    flow, rho = ms.MultiHead([ms.SelfAttention(factored(0), 1.0), other]), tokens(2)
    assert stackable(flow.heads) == ()
    torch.testing.assert_close(flow.drift(0.0, *rho).vector, one_by_one(flow, rho), rtol=0, atol=0)


def test_many_tokens_are_taken_one_by_one(monkeypatch):
    """The scores of all heads are held together only while they are few."""
    flow, rho = ms.MultiHead([ms.SelfAttention(factored(h), 1.0) for h in range(2)]), tokens(2)
    together = flow.drift(0.0, *rho).vector
    monkeypatch.setattr(multihead, "STACKED_SCORES", 2 * 9**2 - 1)
    monkeypatch.setattr(StackedHeads, "means", None)
    torch.testing.assert_close(flow.drift(0.0, *rho).vector, together, rtol=0, atol=1e-13)


class Doubled(ms.SelfAttention):
    """A head with a drift of its own."""

    def drift(self, t, points, mass):
        return 2 * super().drift(t, points, mass).vector


def test_heads_of_another_class_are_not_taken_for_self_attention():
    crowd = tokens(11, 12)
    for make in (
        lambda h: Doubled(factored(h), 1.0),
        lambda h: DrivenAttention(factored(h), 1.0, lambda t: crowd.points, crowd.mass),
    ):
        heads, rho = [make(h) for h in range(2)], tokens(3)
        total = sum(head.ambient_drift(0.0, *rho).vector for head in heads)
        assert float((ms.MultiHead(heads).ambient_drift(0.0, *rho).vector - total).abs().max()) < 1e-14


@pytest.mark.parametrize("n", [1, 31, 97])
def test_blocks_of_rows_on_any_number_of_threads(monkeypatch, n):
    """Rows are shared among threads without a change of any digit that matters, and so without threads of BLAS."""
    flow = ms.MultiHead([ms.SelfAttention(factored(h), 3.0, field=torch.ones(D)) for h in range(3)])
    rho = tokens(5, n)
    expected = one_by_one(flow, rho)
    monkeypatch.setattr(stacked_heads, "PRODUCT", 1e6)  # so costly that all threads take part
    before = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            assert float((flow.drift(0.0, *rho).vector - expected).abs().max()) < 1e-13
    finally:
        torch.set_num_threads(before)
    monkeypatch.setattr(stacked_heads, "blas_can_be_held", lambda: False)
    assert float((flow.drift(0.0, *rho).vector - expected).abs().max()) < 1e-13
