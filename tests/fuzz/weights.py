"""Random weights that move, and the flow that descends under them: refinement, many heads, the energy identity."""

import random

import numpy as np
import torch

import metastable as ms
from metastable.flows import HeadDescent
from metastable.observe import energy_balance, head_dissipation, weight_gradient
from metastable.weights import OrnsteinUhlenbeck, Target


def draw(seed: int) -> tuple[random.Random, OrnsteinUhlenbeck, ms.Measure]:
    """A process of either kind and tokens in its dimension."""
    rnd = random.Random(seed)
    d, heads = rnd.randint(2, 5), rnd.choice((1, 1, 2, 3, 7))
    target = rnd.choice((Target.resting, Target.oscillating))(d, heads)
    noise = rnd.choice((0.0, 10 ** rnd.uniform(-3, 1)))
    process = OrnsteinUhlenbeck(target, 10 ** rnd.uniform(-1, 1), rnd.randint(1, 40), noise, seed=seed)
    n = rnd.randint(1, 9)
    mass = np.random.default_rng(seed).random(n) + 0.05
    return rnd, process, ms.Measure(ms.sphere.uniform(n, d, seed=seed), mass)


def refinement(seed: int) -> str | None:
    """A refined path goes through the same weights, and its heads are symmetric."""
    rnd, process, _ = draw(seed)
    factor = 2 ** rnd.randint(1, 5)
    finer = process.refined(factor)
    if not torch.equal(finer.values[::factor], process.values):
        return f"refined by {factor}, the path of {process!r} is another one"
    if not torch.equal(finer.values, finer.values.mT):
        return f"weights of {process!r} are not symmetric"
    t = rnd.uniform(0, process.t)
    k = min(int(t / process.step), process.values.shape[0] - 2)
    low, high = process.values[k : k + 2].amin(0), process.values[k : k + 2].amax(0)
    slack = 1e-9 * (1 + process.values.abs().max())
    inside = ((process(t) >= low - slack) & (process(t) <= high + slack)).all()
    return None if bool(inside) else f"weights of {process!r} at t = {t} are not between their neighbours"


def many_heads(seed: int) -> str | None:
    """All heads at once against one attention per head."""
    rnd, process, rho = draw(seed)
    t = rnd.uniform(0, process.t)
    heads = [ms.SelfAttention(ms.AttentionWeights(V=-D, B=D), 1.0, kernel="dense", rtol=None) for D in process(t)]
    expected = ms.MultiHead(heads, combine="mean").velocity(0.0, rho.points, rho.mass)
    found = HeadDescent(process).velocity(t, rho.points, rho.mass)
    error = float((found - expected).abs().max()) / (1 + float(process(t).abs().max()) ** 2)
    return None if error < 1e-12 else f"{process!r} at t = {t}: velocity off by {error:.2g}"


def chain_rule(seed: int) -> str | None:
    """dE/dt = <dE/dD, D'> - G^2 along tokens and weights that move, by a central difference."""
    rnd, process, rho = draw(seed)
    t, mobility = rnd.uniform(0, process.t), rnd.choice(("head", "harmonic"))
    flow = HeadDescent(process(t), mobility)
    moved = torch.randn(process.start.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    moved = moved + moved.mT
    v, h = flow.velocity(0.0, rho.points, rho.mass), 1e-5 / (1 + float(process(t).abs().max()))
    ends = [
        HeadDescent(process(t) + s * moved).energy(ms.sphere.normalize(rho.points + s * v), rho.mass)
        for s in (h, -h)
    ]
    slope = (ends[0] - ends[1]) / (2 * h)
    said = float((weight_gradient(rho, flow) * moved).sum()) - head_dissipation(rho, flow)
    scale = 1 + max(ends) * (1 + float(process(t).abs().max())) ** 2
    return None if abs(slope - said) < 1e-6 * scale else f"{process!r}, {mobility}: dE/dt {slope} against {said}"


def balance_of_a_run(seed: int) -> str | None:
    """The residual of the Stratonovich form falls when the step is halved often, on the same path of weights."""
    rnd, process, rho = draw(seed)
    if process.step * float(process.values.abs().max()) ** 2 > 2:
        return None
    sizes, mobility = [], rnd.choice(("head", "harmonic"))
    for factor in (8, 64):
        flow = HeadDescent(process.refined(factor), mobility)
        assert isinstance(flow.heads, OrnsteinUhlenbeck)
        end = flow.heads.times[: 4 * factor + 1]
        path = ms.solve(flow, rho, float(end[-1]), times=end, method="euler", step=flow.heads.step)
        balance = energy_balance(path, flow, "stratonovich")
        sizes.append(float(balance.residual.abs().max()) / float(balance.energy.max()))
    wrong = sizes[1] > max(0.7 * sizes[0], 1e-10)
    return (
        f"{process!r}: residual {sizes[0]:.3g} becomes {sizes[1]:.3g} with an eighth of the step" if wrong else None
    )


CASES = {
    "weights-refinement": refinement,
    "weights-many-heads": many_heads,
    "weights-chain-rule": chain_rule,
    "weights-balance": balance_of_a_run,
}
