"""Energies of heads: their sum, gradients and changes, against definitions and finite differences."""

import pytest
import torch

import metastable as ms
from metastable import observe
from metastable.errors import InvalidInput, NoEnergy
from small_runs import gaussian, random_measure


def symmetric(seed, d, size=0.5):
    M = gaussian(seed, d, d)
    return size * (M + M.T)


def aligned(M, beta, c=1.0):
    return ms.UnnormalizedAttention(ms.AttentionWeights(V=c * M, B=M), beta)


def random_flow(seed, d=4, combine="sum"):
    heads = [aligned(symmetric(10 * seed + h, d), 0.4 + 0.3 * h, c) for h, c in enumerate((1.0, 2.0, -0.5))]
    return ms.MultiHead(heads, combine)


def pushed(rho, velocity, step):
    """The tokens a little later."""
    return ms.Measure(rho.points + step * velocity, rho.mass)


@pytest.mark.parametrize("combine", ["sum", "mean"])
@pytest.mark.parametrize("seed", range(3))
def test_energies_and_pulls_are_those_of_the_flow(seed, combine):
    flow, rho = random_flow(seed, combine=combine), random_measure(seed, 7, 4)
    found = observe.head_energies(rho, flow)
    assert found.total == pytest.approx(flow.energy(*rho), rel=1e-13)
    assert (found.velocity - flow.velocity(0.0, *rho)).abs().max() < 1e-13
    for h, head in enumerate(flow.heads):
        w = head.weights
        kernel = rho.mass * torch.exp(head.beta * rho.points @ w.B @ rho.points.T)
        assert (found.pull[h] - flow.factor * kernel @ rho.points @ w.V.T).abs().max() < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_every_head_changes_as_the_identity_says(seed):
    """V2 word for word, V1 for the sum, and central differences along the flow."""
    flow, rho = random_flow(seed), random_measure(seed, 7, 4)
    found, step = observe.head_energies(rho, flow), 1e-5
    F, shadow = found.pull, found.shadow
    meet = torch.einsum("hid,kid->hki", F, F) - shadow[:, None] * shadow
    assert (found.production - (meet @ rho.mass).sum(1)).abs().max() < 1e-12
    after, before = (observe.head_energies(pushed(rho, found.velocity, s), flow).energy for s in (step, -step))
    assert (found.production - (after - before) / (2 * step)).abs().max() < 1e-7
    assert (found.along(found.velocity) - found.production).abs().max() < 1e-12
    assert found.dissipation == pytest.approx(float(found.production.sum()), rel=1e-12)


def test_radial_dominance_is_the_margin_over_the_shadows_of_the_others():
    flow, rho = random_flow(0), random_measure(0, 7, 4)
    found = observe.head_energies(rho, flow)
    for h in range(3):
        for i in range(7):
            x, F = rho.points[i], found.pull[:, i]
            side = F[h] - (x @ F[h]) * x
            others = sum(abs(float(x @ F[k])) for k in range(3) if k != h)
            expected = float(side @ side) - abs(float(x @ F[h])) * others
            assert float(found.dominance[h, i]) == pytest.approx(expected, abs=1e-13)


def test_a_single_head_dominates_and_says_what_it_is():
    found = observe.head_energies(random_measure(1, 5, 4), aligned(symmetric(3, 4), 0.7))
    assert float(found.dominance.min()) >= 0 and repr(found).startswith("HeadEnergies(1 heads, 5 tokens, total ")


def test_parts_that_do_not_fit_are_refused():
    one = torch.ones(3)
    with pytest.raises(InvalidInput, match=r"must have shapes \(n, d\)"):
        observe.HeadEnergies(one, one, one, one)
    with pytest.raises(InvalidInput, match="mass must be a tensor, got None"):
        observe.HeadEnergies(one, None, one, one)


def test_any_velocity_can_be_asked_for():
    """Softmax heads: dE_h/dt along their velocity, by finite differences."""
    flow, rho = random_flow(2), random_measure(2, 6, 4)
    softmax = ms.MultiHead([ms.SelfAttention(head.weights, head.beta) for head in flow.heads])
    velocity, step = softmax.velocity(0.0, *rho), 1e-5
    found = observe.head_energies(rho, flow)
    after, before = (observe.head_energies(pushed(rho, velocity, s), flow).energy for s in (step, -step))
    assert (found.along(velocity) - (after - before) / (2 * step)).abs().max() < 1e-7
    with pytest.raises(InvalidInput, match=r"velocity must be finite and of shape \(6, 4\)"):
        found.along(velocity[:, :2])


@pytest.mark.parametrize(
    ("flow", "match"),
    [
        (aligned(gaussian(1, 3, 3), 1.0), r"needs a symmetric, non-zero B, and this B is not \(head 0\)"),
        (ms.UnnormalizedAttention(ms.AttentionWeights(V=gaussian(1, 3, 3), B=torch.eye(3)), 1.0), "multiple of B"),
        (ms.MultiHead([ms.SelfAttention(ms.AttentionWeights(V=torch.eye(3), B=torch.eye(3)), 1.0)]), "only unnorm"),
        (aligned(torch.eye(3), 100.0), "without a change of time"),
    ],
)
def test_heads_without_an_energy_are_refused_in_a_sentence(flow, match):
    with pytest.raises(NoEnergy, match=match) as refused:
        observe.head_energies(ms.sphere.uniform(4, 3, seed=0), flow)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "call",
    [
        lambda flow: observe.head_energies(ms.sphere.uniform(4, 3, seed=0), None),
        lambda flow: observe.head_energies(ms.sphere.uniform(4, 2, seed=0), flow),
        lambda flow: observe.head_energies(ms.Measure(torch.eye(3), sphere=False), flow),
        lambda flow: observe.head_energies("tokens", flow),
        lambda flow: observe.head_energies(torch.eye(3), flow, t=float("nan")),
    ],
)
def test_malformed_calls_are_sentences(call):
    with pytest.raises(InvalidInput) as refused:
        call(aligned(torch.eye(3), 1.0))
    assert len(str(refused.value)) < 200
