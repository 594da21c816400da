"""The pullback of every flow is the transpose of its derivative: <w, J v> = <J^T w, v>."""

import math

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows import Flow, HeadDescent, ReLUAttention
from metastable.flows.driven import DrivenAttention
from metastable.measure import Measure


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def head(d, seed=0, factored=False):
    """A head in general position, dense or in factors of rank 2."""
    if factored:
        parts = [normal(*shape, seed=seed + k) for k, shape in enumerate([(2, d), (2, d), (3, d), (d, 3)])]
        return ms.AttentionWeights.from_qkv(*parts)
    return ms.AttentionWeights(V=normal(d, d, seed=seed), B=normal(d, d, seed=seed + 1))


FLOWS = {
    "softmax": lambda d: ms.SelfAttention(head(d), 2.5),
    "field": lambda d: ms.SelfAttention(head(d), 1.5, field=normal(d, seed=5)),
    "factored": lambda d: ms.SelfAttention(head(d, factored=True), 1.5, field=normal(d, seed=5)),
    "beta zero": lambda d: ms.SelfAttention(head(d), 0.0),
    "unnormalised": lambda d: ms.UnnormalizedAttention(head(d), 0.5),
    "scaled": lambda d: ms.UnnormalizedAttention(head(d), 40.0),
    "euclidean": lambda d: ms.EuclideanAttention(head(d), 0.7),
    "heads": lambda d: ms.MultiHead([ms.SelfAttention(head(d, 3), 2.0), ms.UnnormalizedAttention(head(d, 6), 0.4)]),
    "mean of heads": lambda d: ms.MultiHead([ms.SelfAttention(head(d, k), 1.0 + k) for k in range(3)], "mean"),
    "stacked heads": lambda d: ms.MultiHead(
        [
            ms.SelfAttention(
                ms.AttentionWeights.from_qkv(*(normal(2, d, seed=9 + k + j) for j in range(3)), normal(d, 2)), 1.0
            )
            for k in range(3)
        ]
    ),
    "causal": lambda d: ms.Causal(ms.SelfAttention(head(d), 2.0), alibi=3.0),
    "causal without itself": lambda d: ms.Causal(ms.SelfAttention(head(d), 2.0), alibi=1.0, include_self=False),
    "causal unnormalised": lambda d: ms.Causal(
        ms.UnnormalizedAttention(head(d), 0.5), alibi=1.0, include_self=False
    ),
    "causal heads": lambda d: ms.Causal(ms.MultiHead([ms.SelfAttention(head(d, k, k > 0), 1.5) for k in range(2)])),
    "heads of causal": lambda d: ms.MultiHead(
        [ms.Causal(ms.SelfAttention(head(d, k), 1.5), alibi=2.0 * k) for k in range(2)]
    ),
    "ReLU": lambda d: ReLUAttention(head(d)),
    "zero temperature": lambda d: ms.ZeroTemperature(head(d)),
}


@pytest.mark.parametrize("name", FLOWS)
@pytest.mark.parametrize("d", [2, 9])
def test_the_pullback_is_the_transpose_of_the_derivative(name, d):
    flow, n = FLOWS[name](d), 12
    points = ms.sphere.uniform(n, d, seed=3)
    mass = Measure(points, mass=torch.rand(n, generator=torch.Generator().manual_seed(4))).mass
    forward, backward = normal(n, d, seed=7), normal(n, d, seed=8)
    pullback = flow.pullback(0.0, points, mass)
    drift = flow.ambient_drift(0.0, points, mass).vector
    assert bool((pullback.drift.vector == drift).all()), "the field has other digits than in the run"

    def at(s):
        return (backward * flow.ambient_drift(0.0, points + s * forward, mass).vector).sum()

    # Scores of beta = 40 are steep, and ReLU has kinks.
    h = {"scaled": 1e-4, "ReLU": 1e-6}.get(name, 2e-3)
    # Central differences of order 6.
    slope = sum(c * (at(k * h) - at(-k * h)) for k, c in ((1, 3 / 4), (2, -3 / 20), (3, 1 / 60))) / h
    tokens, heads = pullback.back(backward)
    found = float((tokens * forward).sum())
    assert math.isclose(found, float(slope), rel_tol=1e-8, abs_tol=1e-8 * float(drift.abs().max()))
    assert len(heads) == len(pullback.heads)


def test_weights_are_differentiated_as_their_products():
    d, n = 4, 10
    factored = head(d, factored=True)
    dense = ms.AttentionWeights(V=factored.V, B=factored.B)
    points, mass = ms.sphere.uniform(n, d, seed=1), torch.full((n,), 0.1, dtype=torch.float64)
    w = normal(n, d)
    for kind in (ms.SelfAttention, ms.UnnormalizedAttention):
        (_, (a,)), (_, (b,)) = (kind(x, 1.2).pullback(0.0, points, mass).back(w) for x in (factored, dense))
        assert torch.allclose(a.V, b.V, rtol=0, atol=1e-13 * float(b.V.abs().max()))
        assert torch.allclose(a.B, b.B, rtol=0, atol=1e-13 * float(b.B.abs().max()))
        assert math.isclose(a.beta, b.beta, rel_tol=1e-12)


def test_flows_that_nobody_can_differentiate_say_so():
    pole = torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    driven = DrivenAttention(head(2), 1.0, lambda t: pole, torch.ones(1).double())

    class Constant(Flow):
        d = 2

        def drift(self, t, points, mass):
            return torch.ones(points.shape, dtype=torch.float64)

    points, mass = ms.sphere.uniform(40, 2, seed=1), torch.full((40,), 1 / 40, dtype=torch.float64)
    in_place = HeadDescent(torch.eye(2).double())
    for flow in (driven, in_place, Constant()):
        with pytest.raises(InvalidInput, match="derivative of"):
            flow.pullback(0.0, points, mass).back(points)


def test_a_drift_of_one_s_own_inside_attention_is_not_taken_for_ours():
    class Doubled(ms.SelfAttention):
        def drift(self, t, points, mass):
            return 2 * points

    flow, points = Doubled(head(2), 1.0), ms.sphere.uniform(3, 2, seed=1)
    tokens, heads = flow.pullback(0.0, points, torch.full((3,), 1 / 3).double()).back(points)
    assert bool((tokens == 2 * points).all()) and heads == ()
