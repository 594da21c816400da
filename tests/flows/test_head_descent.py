import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows import HeadDescent
from metastable.weights import OrnsteinUhlenbeck, Target
from small_runs import gaussian, random_measure


def heads(seed, h, d):
    """Symmetric matrices."""
    drawn = gaussian(seed, h, d, d)
    return drawn + drawn.mT


@pytest.mark.parametrize(("name", "target"), [("ornstein_uhlenbeck", "resting"), ("oscillating", "oscillating")])
@pytest.mark.parametrize("method", ["euler", "rk4", "adaptive"])
def test_it_is_the_mean_of_heads_on_the_schedules(name, target, method):
    """Two ways of computing one thing: all heads at once, and `MultiHead` of one attention per head."""
    process = OrnsteinUhlenbeck(getattr(Target, target)(3, 3), 0.4, 4, seed=3)
    schedules = getattr(ms.Schedule, name)(3, 0.4, heads=3, steps=4, seed=3)
    each = ms.MultiHead([ms.SelfAttention(s, 1.0) for s in schedules], combine="mean")
    rho, step = random_measure(1, 9, 3), None if method == "adaptive" else 0.05
    paths = [ms.solve(flow, rho, 0.4, method=method, step=step) for flow in (HeadDescent(process), each)]
    assert (paths[0].end.points - paths[1].end.points).abs().max() < (1e-9 if method == "adaptive" else 1e-13)


@pytest.mark.parametrize("mobility", ["head", "harmonic"])
def test_one_head_is_self_attention_that_descends(mobility):
    D, rho = heads(1, 1, 3), random_measure(2, 8, 3)
    attention = ms.SelfAttention(ms.AttentionWeights(V=-D[0], B=D[0]), 1.0)
    flow = HeadDescent(D, mobility)
    both = [f.velocity(0.0, rho.points, rho.mass) for f in (flow, attention)]
    assert (both[0] - both[1]).abs().max() < 1e-14
    assert flow.energy(rho.points, rho.mass) == pytest.approx(attention.energy(rho.points, rho.mass), rel=1e-13)


def test_the_harmonic_mobility_descends_the_gradient():
    """v_i = -b_i grad_i E with b_i = H/sum_h Z_i^h; the gradient by central differences."""
    D, rho = heads(3, 4, 2), random_measure(5, 6, 2)
    flow, x = HeadDescent(D, "harmonic"), rho.points
    velocity = flow.velocity(0.0, x, rho.mass)
    z = torch.exp(x @ D @ x.T) @ rho.mass
    tangent = torch.stack([-x[:, 1], x[:, 0]], dim=1)
    for i in range(6):
        shift = torch.zeros_like(x)
        shift[i] = 1e-5 * tangent[i]
        energies = [flow.energy(ms.sphere.normalize(x + s * shift), rho.mass) for s in (1, -1)]
        slope = (energies[0] - energies[1]) / 2e-5 / float(rho.mass[i])
        assert float(velocity[i] @ tangent[i]) == pytest.approx(-slope / float(z[:, i].mean()), abs=1e-8)


def test_the_same_weights_after_a_kill(tmp_path):
    """A run that is stored, cut short and taken up again meets the same weights, and gives the same digits."""
    process = OrnsteinUhlenbeck(Target.resting(2, 2), 1.0, 16, seed=9)
    rho = random_measure(3, 6, 2)
    once = ms.solve(HeadDescent(process), rho, 1.0, method="euler", step=1 / 16)
    first = ms.solve(HeadDescent(process), rho, 0.5, method="euler", step=1 / 16, out=tmp_path / "run.zarr")
    again = HeadDescent(OrnsteinUhlenbeck(Target.resting(2, 2), 1.0, 16, seed=9))
    assert torch.equal(ms.load(tmp_path / "run.zarr").extend(1.0, flow=again).end.points, once.end.points)
    other = HeadDescent(OrnsteinUhlenbeck(Target.resting(2, 2), 1.0, 16, seed=10))
    with pytest.raises(InvalidInput, match="must be the flow of this path"):
        first.extend(1.0, flow=other)


def test_schedules_of_random_weights_are_told_apart_by_their_seed():
    flows = [
        ms.SelfAttention(ms.Schedule.oscillating(2, 1.0, heads=2, steps=4, seed=seed)[h], 1.0)
        for seed, h in ((0, 0), (0, 1), (1, 0), (0, 0))
    ]
    told = [flow.describe() for flow in flows]
    assert told[0] == told[3] and told[0] != told[1] and told[0] != told[2]


def test_single_precision():
    D, rho = heads(1, 2, 3), random_measure(2, 5, 3)
    flow = HeadDescent(D)
    single = flow.velocity(0.0, rho.points.float(), rho.mass.float())
    assert single.dtype == torch.float32
    assert (single - flow.velocity(0.0, rho.points, rho.mass)).abs().max() < 1e-5


def test_runs_that_do_not_fit_the_weights_are_refused():
    flow = HeadDescent(OrnsteinUhlenbeck(Target.resting(2), 1.0, 4))
    x = ms.sphere.uniform(4, 2)
    with pytest.raises(InvalidInput, match="end at t = 1, but the run goes on to t = 2"):
        ms.solve(flow, x, 2.0)
    with pytest.raises(InvalidInput, match=r"step = 0\.1 does not divide the step 0\.25 of the weights"):
        ms.solve(flow, x, 1.0, method="euler", step=0.1)
    assert ms.solve(flow, x, 1.0, method="euler", step=0.125).provenance["statistics"]["accepted_steps"] == 8


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: HeadDescent([[1.0, 2.0], [0.0, 1.0]]), "heads must be symmetric, as the energy needs it"),
        (lambda: HeadDescent(np.zeros((2, 2, 3))), r"heads must be matrices of shape \(H, d, d\)"),
        (lambda: HeadDescent(None), "heads must be"),
        (lambda: HeadDescent(np.eye(2), "geometric"), "unknown mobility 'geometric'; choose from head, harmonic"),
        (lambda: HeadDescent(2000 * np.eye(2)).energy(np.eye(2), [0.5, 0.5]), "the energy overflows"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(build, match):
    with pytest.raises(InvalidInput, match=match) as refused:
        build()
    assert len(str(refused.value)) < 200


def test_what_it_is_in_one_line():
    assert repr(HeadDescent(np.eye(2), "harmonic")) == "HeadDescent(1 heads, d=2, mobility='harmonic')"
