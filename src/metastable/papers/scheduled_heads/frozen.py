"""Claims about weights that rest (M4): which flows lower the energy, and where they end."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import HeadDescent
from metastable.observe import head_dissipation
from metastable.papers.claim import Claim, Outcome, Setting, as_rows
from metastable.papers.reading import slope, spanned
from metastable.papers.scheduled_heads.protocol import oscillating, resting
from metastable.papers.verdict import ESTIMATE
from metastable.solve.solve import solve

THEME = "Weights at rest"
TIMES = np.linspace(0, 4, 81)
"""When the energy is read."""
RTOL = 1e-6
"""Tolerance of the runs whose late dissipation is read off the energy."""
LONG_TAIL = 0.5
"""How much slower than 1/t the dissipation falls that a reader might expect of tokens that slow down for ever."""
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


def limit_times(setting: Setting) -> np.ndarray:
    """0, and times of which each is twice the one before: the ends of windows in which the dissipation is read."""
    last, windows = setting.choose((60.0, 4), (240.0, 6), (40.0, 3))
    return np.concatenate([[0.0], last / 2.0 ** np.arange(windows, -1, -1)])


def limit_experiment(setting: Setting) -> Outcome:
    """Exponent in t of the dissipation, all draws together, in windows that double; moving weights beside."""
    times = limit_times(setting)
    fallen = np.zeros(len(times) - 1)
    speeds = []
    for number, heads in enumerate(frozen(setting, setting.choose(2, 10, 1))):
        flow = HeadDescent(heads, "harmonic")
        rho0 = sphere.uniform(setting.choose(16, 60, 12), flow.d, seed=1000 * setting.seed + number)
        path = solve(flow, rho0, times[-1], times=times, rtol=RTOL, atol=RTOL / 100)
        energy = np.array([flow.energy(rho.points, rho.mass) for rho in path])
        fallen -= np.diff(energy)  # int G^2: the weights do no work
        speeds.append(float(flow.velocity(0.0, path.end.points, path.mass).norm(dim=1).max()))
    moving = HeadDescent(oscillating(times[-1], round(25 * times[-1]), 1, setting.seed))
    fine = np.linspace(0, times[-1], 401)
    path = solve(moving, sphere.uniform(12, 3, seed=setting.seed), fine[-1], times=fine, method="euler", step=0.04)
    lost = np.array([head_dissipation(rho, moving, t) for rho, t in zip(path, fine, strict=True)])
    inside = [(fine > first) & (fine <= last) for first, last in pairwise(times[1:])]
    # Below the integrator's error nothing is known of the fall; there the dissipation has died out.
    resting = np.maximum(fallen[1:], RTOL * fallen.sum()) / np.diff(times[1:])
    going = np.array([lost[one].mean() for one in inside])
    middle = np.sqrt(times[1:-1] * times[2:])
    return Outcome(
        slope(np.log(middle), np.log(resting)),
        curves={"t": middle, "resting": resting / resting[0], "moving": going / going[0]},
        table=as_rows({"from": times[1:-1], "to": times[2:], "mean of G²": resting, "of moving weights": going}),
        rivals={"weights that go on moving": slope(np.log(middle), np.log(going)), "a long tail": -1.0 + LONG_TAIL},
        note=f"{len(speeds)} draws; largest speed at the end {max(speeds):.1e}, median {np.median(speeds):.1e}",
    )


def limit_figure(outcome: Outcome) -> Lines:
    """The dissipation in windows that double, and the slowest fall that a bounded energy allows."""
    t = outcome.curves["t"]
    series = [
        Series(t, outcome.curves["resting"], "weights at rest", "marked"),
        Series(t, outcome.curves["moving"], "oscillating weights", "marked"),
        Series(t, t[0] / t, "1/t: the energy would fall for ever", "dashed"),
    ]
    return Lines("Dissipation of late times", "time t", "mean of G² / first", series, log_x=True, log_y=True)


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
            "While the weights rest, the dissipation dies out, so that limit points are stationary: G² falls "
            f"faster than 1/t, of which the integral would not be bounded (t {spanned(limit_times(setting)[1:])})."
        ),
        limit_experiment,
        expected=-1.0,
        tolerance=0.0,
        relation="at most",
        reason="a bound: ∫G² is the fall of the energy, which is bounded, so that no power of t down to -1 can be; "
        f"the energy is known to {RTOL:g} of its fall",
        source=ESTIMATE,
        figure=limit_figure,
        theme=THEME,
        unit="exponent of t of G²",
        effort=4,
        rivals={
            "weights that go on moving": "A head whose weights oscillate comes to rest, too.",
            "a long tail": "Tokens slow down for ever, and G² falls like t^(-1/2).",
        },
    ),
)
