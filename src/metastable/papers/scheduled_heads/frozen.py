"""Claims about weights that rest (M4): which flows lower the energy, and where they end."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import HeadDescent
from metastable.observe import head_dissipation
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.scheduled_heads.protocol import oscillating, resting
from metastable.papers.verdict import ESTIMATE
from metastable.solve.solve import solve

THEME = "Weights at rest"
TIMES = np.linspace(0, 4, 81)
"""When the energy is read."""
OPPOSED = ([[3.0, 2.0], [2.0, 2.0]], [[-1.0, 3.0], [3.0, -3.0]])
"""Two heads under whose mean tokens raise the energy: the head that moves them most has the least of the energy."""


def frozen(setting: Setting, draws: int) -> list[Tensor]:
    """Weights D = Z + Z^T that do not move, of one head and of two and five, d = 2 and 3."""
    sizes = ((2, 1), (2, 2), (3, 2), (3, 5))
    found = [resting(1.0, 1, h, 50 * setting.seed + k, d=d).start for d, h in sizes for k in range(draws)]
    return [start for start in found if start is not None]


def descent_experiment(setting: Setting) -> Outcome:
    """Largest rise of the energy between two times relative to its range, gradient flows and the mean of heads."""
    rise: dict[str, list[float]] = {"harmonic": [], "head": []}
    curves = {"t": TIMES}
    opposed = torch.tensor(OPPOSED, dtype=torch.float64)
    for number, heads in enumerate([opposed, *frozen(setting, setting.choose(1, 10))]):
        for mobility, found in rise.items():
            if mobility == "head" and len(heads) == 1:
                continue  # the same flow
            flow = HeadDescent(heads, mobility)
            rho0 = sphere.uniform(setting.choose(16, 60, 12), flow.d, seed=1000 * setting.seed + number)
            path = solve(flow, rho0, TIMES[-1], times=TIMES, rtol=1e-8, atol=1e-10)
            energy = np.array([flow.energy(rho.points, rho.mass) for rho in path])
            later = np.maximum.accumulate(energy[::-1])[::-1]
            found.append(float((later - energy).max() / np.ptp(energy)))
            if heads is opposed:
                curves[mobility] = energy
    words = {"harmonic": "gradient flow (one head, or harmonic mobility)", "head": "mean of softmax heads, H > 1"}
    return Outcome(
        max(rise["harmonic"]),
        curves=curves,
        table=[
            {"flow": words[mobility], "weights": len(found), "largest rise": max(found)}
            | {"of them with a rise": sum(value > 1e-6 for value in found)}
            for mobility, found in rise.items()
        ],
        rivals={"mean of softmax heads": max(rise["head"])},
    )


def descent_figure(outcome: Outcome) -> Lines:
    """The energy over time under two opposed heads."""
    t, curves = outcome.curves["t"], outcome.curves
    series = [
        Series(t, curves["head"], "mean of softmax heads"),
        Series(t, curves["harmonic"], "harmonic mobility: a gradient flow", "dashed"),
    ]
    return Lines("The energy under two heads that rest", "time t", "E(x; D)", series)


def limit_time(setting: Setting) -> float:
    """Until when the tokens are watched."""
    return float(setting.choose(30.0, 200.0, 20.0))


def limit_experiment(setting: Setting) -> Outcome:
    """Part of the dissipation that falls into the second half of a run, all draws together; moving weights
    beside."""
    t = limit_time(setting)
    halves = np.zeros(2)
    speeds = []
    for number, heads in enumerate(frozen(setting, setting.choose(2, 10, 1))):
        flow = HeadDescent(heads, "harmonic")
        rho0 = sphere.uniform(setting.choose(16, 60, 12), flow.d, seed=1000 * setting.seed + number)
        path = solve(flow, rho0, t, times=[0.0, t / 2, t], rtol=1e-6, atol=1e-8)
        energy = [flow.energy(rho.points, rho.mass) for rho in path]
        halves += np.array([energy[0] - energy[1], energy[1] - energy[2]])  # int G^2: the weights do no work
        speeds.append(float(flow.velocity(0.0, path.end.points, path.mass).norm(dim=1).max()))
    moving = HeadDescent(oscillating(t, round(25 * t), 1, setting.seed))
    times = np.linspace(0, t, 401)
    path = solve(moving, sphere.uniform(12, 3, seed=setting.seed), t, times=times, method="euler", step=0.04)
    lost = np.array([head_dissipation(rho, moving, time) for rho, time in zip(path, times, strict=True)])
    return Outcome(
        float(halves[1] / halves.sum()),
        table=[
            {"draws": len(speeds), "median of the largest speed at the end": float(np.median(speeds))}
            | {"largest of them": max(speeds)}
        ],
        rivals={"weights that go on moving": float(lost[201:].sum() / lost.sum())},
    )


CLAIMS = (
    Claim(
        "frozen-energy-falls",
        "While the weights rest, the energy never rises along one softmax head and along many with the "
        "harmonic mean "
        "of their mobilities.",
        descent_experiment,
        expected=0.0,
        tolerance=1e-6,
        reason="the integrator's tolerance is 1e-8 per step; relative to the fall of the energy",
        source=ESTIMATE,
        figure=descent_figure,
        theme=THEME,
        unit="largest rise / range of E",
        effort=4,
        rivals={
            "mean of softmax heads": "The plain mean of several softmax heads, the flow of the public code, "
            "lowers the "
            "energy as well."
        },
    ),
    Claim(
        "frozen-limits-rest",
        lambda setting: (
            "While the weights rest, the dissipation dies out, so that limit points are stationary: of all that is "
            f"dissipated until t = {limit_time(setting):g}, little falls into the second half."
        ),
        limit_experiment,
        expected=0.15,
        tolerance=0.0,
        relation="at most",
        reason="∫G² is the fall of the energy, which is bounded, so that its second half vanishes; some draws "
        "pass a "
        "saddle late; steady motion has one half",
        source=ESTIMATE,
        theme=THEME,
        unit="part of ∫G² in the second half",
        effort=4,
        rivals={"weights that go on moving": "A head whose weights oscillate comes to rest, too."},
    ),
)
