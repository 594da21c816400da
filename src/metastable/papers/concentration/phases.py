"""Claims about the three phases: for how long the law is concentrated, and where it is in the end.

A law is *concentrated* while W2(rho_t, Pi#rho_0) <= NEAR W2(rho_0, Pi#rho_0), and *terminal* once its distance to
the dominant space of V is as small a share of the first one. On the way from the one to the other it is neither:
clusters half-way between two directions may then be nearer to a spread-out rho_0 than to both, which is geometry
and no phase.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from metastable import meanfield, sphere
from metastable.drawing import PhaseMap, Portrait, dominant_axes, spectra
from metastable.meanfield import Uniform
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.families import competing, sheared
from metastable.papers.concentration.measuring import distances, mean_field, run
from metastable.papers.concentration.sources import PAPER
from metastable.papers.reading import first_crossing
from metastable.solve import Path
from metastable.theory import distance_to_limit, limit, phase_times, spectrum, terminal, zero_temperature
from metastable.transport import wasserstein
from metastable.weights import AttentionWeights

THEME = "Three phases"
NEAR, ENTERED = 0.2, 0.15
"""Share of the first distance below which a law is concentrated or terminal; and the share at which zero
temperature says that it has entered, which leaves a quarter of the former to finite beta."""
STATED = 0.8
"""The stated duration of the concentrated phase of the mean field ends at this share of beta Delta/g_out; the next
order of that estimate is a logarithm of beta earlier."""
LEFT = math.log(9.0)
"""The stated duration for iid tokens ends as many e-folds before the exit: the offset, 1/2 at the exit, is then
1/18 for an offset of one standard deviation and below 0.15 for one of 2.7."""
SETTLED = 5.0, 7.0
"""e-folds after the exit until the terminal phase, of the mean field and of tokens, whose exit scatters. The mean
field turns from one direction to the other in a time that grows with beta: five e-folds after the exit the distance
to V's top is 0.10 and 0.16 of the first one at beta = 64 and 96, and still above 0.19 at 128, so that the claim is
made up to 96."""
SHOWN = 600
"""Most tokens of the portrait."""


def distance_to_space(points: Tensor, mass: Tensor, space: Tensor) -> np.ndarray:
    """sqrt(E[2(1 - |P x|)]), W2 distance of every saved law to the laws on the unit sphere of a space."""
    onto = torch.linalg.vector_norm(points @ space, dim=-1).clamp(max=1.0)
    return (2 * (1 - onto) @ mass).clamp(min=0.0).sqrt().numpy()


def entered(w: AttentionWeights, rho0: Measure) -> float:
    """Time at which the exact zero-temperature distance has fallen to ENTERED of its first value."""
    times = np.linspace(0, 12, 97)
    zero = np.asarray(distance_to_limit(w, rho0, times))
    return first_crossing(times, zero / zero[0], ENTERED, upwards=False)


def worst(times: np.ndarray, near: np.ndarray, far: np.ndarray, window: tuple[float, float]) -> float:
    """Largest share of W2(0) in the stated window, and of the distance to V's top at the end: the larger."""
    inside = (times >= window[0]) & (times <= window[1])
    return float(max(near[inside].max(), far[-1]))


def straight(w: AttentionWeights, rho0: Measure, times: np.ndarray) -> Tensor:
    """A law without a concentrated phase: every token obeys x' = P_x V x and goes straight to the top of V."""
    alone = AttentionWeights(V=w.V, B=np.eye(w.d))
    return zero_temperature(alone, rho0.points, times)


def rivals_of(
    w: AttentionWeights, rho0: Measure, times: np.ndarray, window: tuple[float, float]
) -> dict[str, float]:
    """`worst` for a law that goes straight to V's top, and for one that stays at Pi#rho_0 for ever."""
    space, target = terminal(spectrum(w)).space, limit(w, rho0)
    points = straight(w, rho0, times)
    first = float(wasserstein(rho0, target))
    start = distance_to_space(rho0.points[None], rho0.mass, space)[0]
    near = np.array([float(wasserstein(Measure(x, rho0.mass), target)) for x in points]) / first
    far = distance_to_space(points, rho0.mass, space) / start
    zero = np.asarray(distance_to_limit(w, rho0, times)) / first
    stays = distance_to_space(target.points[None], target.mass, space) / start
    return {
        "straight to V's top": worst(times, near, far, window),
        "for ever concentrated": worst(times, zero, stays, window),
    }


def phases_experiment(setting: Setting) -> Outcome:
    """Mean field of G(0.5) from the uniform law: W2 to Pi#rho_0 in the stated window, then distance to V's top."""
    w = sheared(0.5)
    s = spectrum(w)
    betas = np.array(setting.choose((64.0, 80.0), (64.0, 72.0, 80.0, 88.0, 96.0), small=(64.0,)))
    rho0 = Measure(sphere.equispaced(400))
    space, begin = terminal(s).space, entered(w, rho0)
    last = betas[-1] * s.delta / s.g_out + SETTLED[0] / terminal(s).rate
    grid = np.linspace(0, last, int(setting.choose(4, 8) * last) + 1)
    phase = np.zeros((len(betas), len(grid)), dtype=int)
    measured, rows, rivals = [], [], []
    for i, beta in enumerate(betas):
        exit_time = beta * s.delta / s.g_out
        times = grid[grid <= exit_time + SETTLED[0] / terminal(s).rate]
        window = begin, STATED * exit_time
        path = mean_field(w, beta, Uniform(2), times, tol=3e-3)
        near = meanfield.distance_to_limit(path).distance.numpy()
        near = near / near[0]
        far = np.array([_to_space(path.measure(j), space) for j in range(len(path))])
        far = far / far[0]
        measured.append(worst(times, near, far, window))
        rivals.append(rivals_of(w, rho0, times, window))
        phase[i, len(times) :] = 2
        phase[i, : len(times)] = np.where(near <= NEAR, 1, np.where(far <= NEAR, 2, 0))
        concentrated = times[near <= NEAR]
        rows.append(
            {
                "beta": beta,
                "stated from": window[0],
                "stated to": window[1],
                "concentrated from": concentrated.min(initial=math.inf),
                "concentrated to": concentrated.max(initial=-math.inf),
                "terminal from": times[far <= NEAR].min(initial=math.inf),
                "largest share of W2(0) in the window": worst(times, near, np.zeros(1), window),
                "distance to V's top at the end, share": far[-1],
            }
        )
    return Outcome(
        max(measured),
        rivals={name: min(one[name] for one in rivals) for name in rivals[0]},
        curves={"t": grid, "beta": betas, "phase": phase},
        table=rows,
    )


def _to_space(rho: Measure, space: Tensor) -> float:
    return float(distance_to_space(rho.points[None], rho.mass, space)[0])


def phases_figure(outcome: Outcome) -> PhaseMap:
    """The phase diagram."""
    return PhaseMap(
        "Phases of the mean field, sheared weights G(0.5), uniform data",
        outcome.curves["t"],
        outcome.curves["beta"],
        outcome.curves["phase"],
        labels=("neither", "concentrated", "terminal"),
    )


def portrait_experiment(setting: Setting) -> Outcome:
    """Iid tokens on S^2: W2 to Pi#rho_0 in the stated window, then distance to the top of V, worst of some
    seeds."""
    w, beta, n = competing(3), 60.0, 1500
    seeds = setting.choose(2, 8)
    s = spectrum(w)
    end = terminal(s)
    measured, rows, rivals = [], [], []
    shown: Path | None = None
    for k in range(seeds):
        rho0 = Measure(sphere.uniform(n, 3, seed=1000 * setting.seed + 3 + k))
        exit_time = phase_times(s, beta, rho0).exit_mean_field
        window = entered(w, rho0), exit_time - LEFT / end.rate
        times = np.linspace(0, exit_time + SETTLED[1] / end.rate, 73)
        path = run(w, beta, rho0, times, rtol=1e-4)
        near = distances(path, limit(w, rho0))
        far = distance_to_space(path.points, path.mass, end.space)
        near, far = near / near[0], far / far[0]
        measured.append(worst(times, near, far, window))
        rivals.append(rivals_of(w, rho0, times, window))
        shown = shown or path
        rows.append(
            {
                "seed": 1000 * setting.seed + 3 + k,
                "stated from": window[0],
                "stated to": window[1],
                "largest share of W2(0) in the window": worst(times, near, np.zeros(1), window),
                "distance to V's top at the end, share": far[-1],
            }
        )
    assert shown is not None
    return Outcome(
        float(np.mean(measured)),
        float(np.std(measured, ddof=1)) / math.sqrt(seeds),
        rivals={name: min(one[name] for one in rivals) for name in rivals[0]},
        curves={
            "t": shown.times.numpy(),
            "points": shown.points[:, :SHOWN].numpy().astype(np.float32),
            "mass": np.full(min(n, SHOWN), 1 / min(n, SHOWN)),
        },
        table=rows,
        note=f"largest of {seeds} seeds {max(measured):.3f}",
    )


def portrait_figure(outcome: Outcome) -> Portrait:
    """The tokens over time."""
    found = spectrum(competing(3))
    return Portrait(
        "Three phases on the sphere: V = diag(1, 2, ½), B = diag(4, 1, 1), β = 60",
        outcome.curves["t"],
        outcome.curves["points"],
        outcome.curves["mass"],
        dominant_axes(found),
        spectra(found),
    )


RIVALS = {
    "straight to V's top": "There is no concentrated phase: tokens obey x' = P_x V x and go to the top of V "
    "at once.",
    "for ever concentrated": "There is no third phase: M decides and the law stays at Pi#rho_0.",
}

CLAIMS = (
    Claim(
        "three-phases",
        f"The law comes within {NEAR:g} of its first distance to Pi#rho_0 and stays there for the stated "
        "time, from the "
        f"zero-temperature time to {STATED:g} beta Delta/g_out; {SETTLED[0]:g} relaxation times after the "
        "exit it is as "
        "near to the top space of V. The phases are the paper's, the times are metastable's estimates.",
        phases_experiment,
        expected=NEAR,
        tolerance=0.01,
        reason="a share of the first distance that separates the phases; the mean field is known to 0.003",
        source=PAPER,
        figure=phases_figure,
        relation="at most",
        theme=THEME,
        unit="largest share of the first distance",
        effort=24,
        rivals=RIVALS,
    ),
    Claim(
        "three-phases-on-the-sphere",
        f"iid tokens on S^2 come within {NEAR:g} of their first distance to Pi#rho_0, stay there until the sampled "
        "offset of the clusters has grown to 1/18, and then gather on the top direction of V. The phases are the "
        "paper's, the times are metastable's estimates.",
        portrait_experiment,
        expected=NEAR,
        tolerance=0.0,
        reason="a share of the first distance that separates the phases; the standard error over seeds is counted",
        source=PAPER,
        figure=portrait_figure,
        relation="at most",
        theme=THEME,
        unit="largest share of the first distance",
        effort=6,
        rivals=RIVALS,
    ),
)
