"""Several heads: their sum or mean, their energy, and the layer that adds it."""

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput, NoEnergy

EYE = torch.eye(3, dtype=torch.float64)


def random_weights(seed):
    g = torch.Generator().manual_seed(seed)
    V, B = (torch.randn(3, 3, generator=g, dtype=torch.float64) for _ in range(2))
    return ms.AttentionWeights(V=V, B=EYE + 0.5 * B)


def random_measure(seed, n):
    g = torch.Generator().manual_seed(seed + 1)
    return ms.Measure(ms.sphere.uniform(n, 3, seed=g), torch.rand(n, generator=g, dtype=torch.float64) + 0.1)


def test_multihead_conventions():
    w, rho = random_weights(3), random_measure(3, 7)
    heads = [ms.SelfAttention(w, b) for b in (0.5, 1.0, 4.0)]
    total = sum(h.velocity(0.0, *rho) for h in heads)
    assert (ms.MultiHead(heads).velocity(0.0, *rho) - total).abs().max() < 1e-14
    assert (ms.MultiHead(heads, combine="mean").velocity(0.0, *rho) - total / 3).abs().max() < 1e-14


def test_energy_of_unnormalised_heads_is_their_sum():
    """V_h = c_h B_h: E = sum_h c_h E_h; softmax heads have a partition each, so they have no common energy."""
    rho = random_measure(1, 5)
    symmetric = [ms.AttentionWeights(V=c * EYE, B=EYE) for c in (2.0, -1.0)]
    heads = [ms.UnnormalizedAttention(w, 1.0) for w in symmetric]
    expected = 2 * heads[0].energy(*rho) - heads[1].energy(*rho)
    assert ms.MultiHead(heads).energy(*rho) == pytest.approx(expected, rel=1e-14)
    assert ms.MultiHead(heads, "mean").energy(*rho) == pytest.approx(expected / 2, rel=1e-14)
    single = ms.SelfAttention(symmetric[0], 1.0)
    assert ms.MultiHead([single]).energy(*rho) == single.energy(*rho)
    with pytest.raises(NoEnergy):
        ms.MultiHead([single] * 2).energy(*rho)


def test_breakpoints_are_those_of_all_heads():
    w = random_weights(0)
    layered = [ms.SelfAttention(ms.Schedule.layers([w] * k, 1.0), 1.0) for k in (2, 4)]
    assert ms.MultiHead(layered).breakpoints == (0.25, 0.5, 0.75)


def test_several_heads_say_what_they_are_in_one_line():
    w = random_weights(0)
    one, two = ms.SelfAttention(w, 2.0), ms.UnnormalizedAttention(w, 0.5)
    assert repr(ms.MultiHead([one, one])) == "MultiHead(2 heads, d=3, beta=2, combine='sum')"
    assert repr(ms.MultiHead([one, two], "mean")) == "MultiHead(2 heads, d=3, beta=0.5..2, combine='mean')"
    assert repr(ms.MultiHead([ms.Hardmax(w)])) == "MultiHead(1 head, d=3, combine='sum')"


def test_only_a_residual_flow_says_so():
    """What a run is recognised by does not change for flows that are no layers."""
    heads = [ms.Hardmax(random_weights(0))]
    assert not ms.MultiHead(heads).residual and "residual" not in ms.MultiHead(heads).describe()
    layer = ms.MultiHead(heads, residual=True)
    assert layer.residual and layer.describe()["residual"] is True


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda w: ms.MultiHead([]), "at least one head"),
        (lambda w: ms.MultiHead([w]), "heads must be a sequence of flows, got AttentionWeights at place 0"),
        (lambda w: ms.MultiHead([ms.Hardmax(w)], combine="max"), "unknown combine 'max'; choose from sum, mean"),
        (
            lambda w: ms.MultiHead([ms.Hardmax(w), ms.Hardmax(ms.AttentionWeights(V=EYE[:2, :2], B=EYE[:2, :2]))]),
            r"all heads must have one dimension, got \[2, 3\]",
        ),
        (lambda w: ms.MultiHead([ms.Hardmax(w), ms.EuclideanAttention(w, 1.0)]), "cannot be mixed"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(build, match):
    with pytest.raises(InvalidInput, match=match):
        build(random_weights(0))


def test_what_a_layer_is_shows_in_one_line():
    """Rank, fields and the residual step of a trained layer; betas of many systems."""
    g = torch.Generator().manual_seed(0)
    q, k, v, o = (torch.randn(2, 5, generator=g, dtype=torch.float64) for _ in range(4))
    w = ms.AttentionWeights.from_qkv(q, k, v, o.T)
    layer = ms.MultiHead([ms.SelfAttention(w, 1.0, field=torch.ones(5)) for _ in range(3)], residual=True)
    assert repr(layer) == ("MultiHead(3 heads of rank 2, d=5, beta=1, combine='sum', 3 with a field, residual)")
    assert "beta=1..4" in repr(ms.MultiHead([ms.SelfAttention(w, [1.0, 4.0]), ms.SelfAttention(w, 2.0)]))
