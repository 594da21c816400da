import numpy as np
import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows import HeadDescent
from metastable.observe import EnergyBalance, energy_balance, head_dissipation, weight_gradient
from metastable.weights import OrnsteinUhlenbeck, Target
from small_runs import gaussian, random_measure


def case(seed, h=3, d=3, mobility="head"):
    drawn = gaussian(seed, h, d, d)
    return HeadDescent(drawn + drawn.mT, mobility), random_measure(seed, 7, d)


@pytest.mark.parametrize("mobility", ["head", "harmonic"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_dissipation_is_the_fall_of_the_energy(seed, mobility):
    """dE/dt = -G^2 while the weights rest: central differences of E along the velocity."""
    flow, rho = case(seed, mobility=mobility)
    v = flow.velocity(0.0, rho.points, rho.mass)
    ends = [flow.energy(ms.sphere.normalize(rho.points + s * v), rho.mass) for s in (1e-5, -1e-5)]
    assert head_dissipation(rho, flow) == pytest.approx(-(ends[0] - ends[1]) / 2e-5, rel=1e-7, abs=1e-9)


def test_it_is_a_sum_of_squares_where_the_flow_is_a_gradient_flow():
    flow, rho = case(4, h=1)
    v = flow.velocity(0.0, rho.points, rho.mass)
    z = torch.exp(rho.points @ flow.heads[0] @ rho.points.T) @ rho.mass
    assert head_dissipation(rho, flow) == pytest.approx(float(rho.mass @ (z * v.square().sum(1))), rel=1e-12)
    flow, rho = case(4, h=5, mobility="harmonic")
    v = flow.velocity(0.0, rho.points, rho.mass)
    z = (torch.exp(rho.points @ flow.heads @ rho.points.T) @ rho.mass).mean(0)
    assert head_dissipation(rho, flow) == pytest.approx(float(rho.mass @ (z * v.square().sum(1))), rel=1e-12)


def test_the_mean_of_heads_may_raise_the_energy():
    flow = HeadDescent([[[3.0, 2.0], [2.0, 2.0]], [[-1.0, 3.0], [3.0, -3.0]]])
    path = ms.solve(flow, ms.sphere.equispaced(12), 4.0)
    before, after = (flow.energy(rho.points, rho.mass) for rho in (path.measure(0), path.end))
    assert before == pytest.approx(5.133, abs=1e-3) and after == pytest.approx(8.507, abs=2e-3)
    assert head_dissipation(path.measure(0), flow) < 0


def test_the_force_on_the_weights_is_the_derivative_by_them():
    flow, rho = case(5)
    shift = gaussian(9, 3, 3, 3)
    shift = shift + shift.mT
    ends = [HeadDescent(flow.heads + s * shift).energy(rho.points, rho.mass) for s in (1e-6, -1e-6)]
    slope = (ends[0] - ends[1]) / 2e-6
    assert float((weight_gradient(rho, flow) * shift).sum()) == pytest.approx(slope, rel=1e-7)


def test_the_ito_term_is_half_of_the_second_derivative_times_the_variance():
    """E[E(x; D + sqrt(nu dt) S)] - E(x; D) over 200 000 draws of S against one step of the balance."""
    rho = random_measure(6, 5, 2)
    process = OrnsteinUhlenbeck(Target.resting(2), 1e-3, 1, 2.0, torch.eye(2))
    flow = HeadDescent(process)
    path = ms.solve(flow, rho, 1e-3, method="euler", step=1e-3, times=process.times)
    normal = gaussian(1, 200_000, 2, 2)
    normal = torch.cat([normal, -normal])
    drawn = torch.eye(2) + np.sqrt(2.0 * 1e-3) * (normal + normal.mT) / 2
    energies = torch.exp(rho.points @ drawn @ rho.points.T) @ rho.mass @ rho.mass / 2
    risen = energies.reshape(2, -1).mean(0) - flow.energy(rho.points, rho.mass)
    error = float(risen.std()) / np.sqrt(len(risen))
    assert float(energy_balance(path, flow).ito[-1]) == pytest.approx(float(risen.mean()), abs=5 * error + 1e-5)


@pytest.mark.parametrize("rule", ["ito", "stratonovich"])
def test_the_terms_add_up_and_weights_at_rest_do_no_work(rule):
    flow, rho = case(7)
    errors = []
    for step in (0.01, 0.005):
        path = ms.solve(flow, rho, 0.5, method="euler", step=step, times=np.linspace(0, 0.5, round(0.5 / step) + 1))
        balance = energy_balance(path, flow, rule)
        assert not balance.supplied.any() and not balance.ito.any() and not balance.martingale.any()
        errors.append(float(balance.residual[-1].abs() / (balance.energy[0] - balance.energy[-1]).abs()))
    assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.2)
    assert float(balance.dissipated[-1]) == pytest.approx(float(balance.energy[0] - balance.energy[-1]), rel=0.1)
    assert float(balance.energy[3]) == pytest.approx(flow.energy(path.points[3], path.mass), rel=1e-13)


@pytest.mark.parametrize("heads", [1, 5])
def test_both_forms_close_to_first_order_without_noise(heads):
    for rule in ("ito", "stratonovich"):
        errors = []
        for steps in (128, 256):
            flow = HeadDescent(OrnsteinUhlenbeck(Target.oscillating(2, heads), 0.5, steps, 0.0, seed=1))
            path = ms.solve(
                flow, random_measure(8, 6, 2), 0.5, times=flow.heads.times, method="euler", step=flow.heads.step
            )
            errors.append(float(energy_balance(path, flow, rule).residual[-1].abs()))
        assert errors[0] / errors[1] == pytest.approx(2.0, abs=0.25)


def test_the_martingale_is_the_work_of_the_innovations():
    process = OrnsteinUhlenbeck(Target.resting(2, 2), 0.5, 8, seed=3)
    flow = HeadDescent(process)
    path = ms.solve(flow, random_measure(2, 5, 2), 0.25, method="euler", step=1 / 16, times=process.times[:5])
    balance = energy_balance(path, flow)
    work = [
        float((weight_gradient(path.measure(k), flow, float(process.times[k])) * process.innovations[k]).sum())
        for k in range(4)
    ]
    assert balance.martingale[1:].tolist() == pytest.approx(np.cumsum(work).tolist(), rel=1e-12)


def test_bad_input_is_refused_with_a_sentence():
    flow, rho = case(1)
    path = ms.solve(flow, rho, 0.1, times=3)
    moving = HeadDescent(OrnsteinUhlenbeck(Target.resting(3, 3), 0.1, 8))
    for call, match in (
        (lambda: energy_balance(None, flow), "path must be a Path"),
        (lambda: energy_balance(path, None), "flow must be a HeadDescent"),
        (lambda: energy_balance(path, flow, "exact"), "unknown rule 'exact'; choose from ito, stratonovich"),
        (lambda: energy_balance(path, moving), r"kept at the times of the weights, 0\.0125 apart"),
        (lambda: energy_balance(path, HeadDescent(np.eye(2))), "tokens have dimension 3 but the flow"),
        (lambda: head_dissipation(rho, None), "flow must be a HeadDescent"),
        (lambda: head_dissipation([[1.0, 0.0]], flow), r"points must have shape \(n, 3\)"),
        (lambda: weight_gradient(rho, flow, None), "t must be a number"),
        (
            lambda: EnergyBalance(*[torch.zeros(2)] * 5, torch.zeros(3)),
            "dissipated of an EnergyBalance must be one",
        ),
    ):
        with pytest.raises(InvalidInput, match=match) as refused:
            call()
        assert len(str(refused.value)) < 200


def test_what_it_is_in_one_line():
    flow, rho = case(1)
    assert repr(energy_balance(ms.solve(flow, rho, 0.1, times=2), flow)).startswith("EnergyBalance(2 times, E = ")
