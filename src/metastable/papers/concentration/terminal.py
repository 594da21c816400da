"""Claims about the terminal phase: alignment with the top space of V, and rotation where V has a complex pair."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.families import competing, sheared
from metastable.papers.concentration.measuring import run
from metastable.papers.concentration.sources import ESTIMATE
from metastable.papers.reading import farthest, first_crossing, slope
from metastable.theory import spectrum
from metastable.weights import AttentionWeights

THEME = "Times of the phases"


def terminal_experiment(setting: Setting) -> Outcome:
    """Distance to the top direction of V at late times: how fast it falls, for weights whose gaps of V and M
    differ."""
    curves: dict[str, np.ndarray] = {}
    cases: dict[str, tuple[AttentionWeights, float, Tensor, float]] = {
        "G(0.5)": (sheared(0.5), 64.0, sphere.equispaced(200), 26.0),
        "V = diag(1, 2), B = diag(4, 1)": (competing(), 30.0, sphere.uniform(200, 2, seed=setting.seed + 1), 34.0),
        "V = diag(1, 3/2), B = diag(3, 1)": (
            AttentionWeights(V=np.diag([1.0, 1.5]), B=np.diag([3.0, 1.0])),
            30.0,
            sphere.uniform(200, 2, seed=setting.seed + 3),
            60.0,
        ),
    }
    if not setting.quick and not setting.small:
        cases["V = diag(1, 2, 1/2), B = diag(4, 1, 1)"] = (
            competing(3),
            50.0,
            sphere.uniform(400, 3, seed=setting.seed + 2),
            36.0,
        )
    rows, last, ratios, to_M, to_inner = [], [], [], [], []
    for name, (w, beta, x0, t_end) in cases.items():
        s = spectrum(w)
        times = np.linspace(0, t_end, 105)
        path = run(w, beta, x0, times, rtol=1e-9)
        onto = path.points @ (s.V.space @ s.V.space.T)
        distance = torch.linalg.vector_norm(path.points - onto, dim=2).amax(1).numpy()
        window = (distance < 1e-2) & (distance > 1e-7) & (times > times[int(np.argmax(distance))])
        rate = -slope(times[window], np.log(distance[window]))
        ratios.append(rate / s.V.gap)
        to_M.append(rate / s.gap)
        to_inner.append(rate / s.g_in)
        last.append(distance[-1])
        rows.append(
            {"weights": name, "rate": rate, "mu_1 - mu_2 of V": s.V.gap, "gap of M": s.gap, "g_in": s.g_in}
            | {"farthest token at the end": distance[-1]}
        )
        curves |= {f"t {name}": times, f"distance {name}": distance, f"gap {name}": np.array([s.V.gap])}
    return Outcome(
        farthest(ratios, 1.0),
        rivals={
            "gap of M": farthest(to_M, 1.0),
            "rate of concentration": farthest(to_inner, 1.0),
            "tokens stay on E": 0.0,
        },
        curves=curves,
        table=rows,
        note=f"farthest token from the top space of V at the end: {max(last):.1e}",
    )


def terminal_figure(outcome: Outcome) -> Lines:
    """Farthest token from V's top space, and e^{-(mu_1 - mu_2) t} through the end of the fitted stretch."""
    names = [k[2:] for k in outcome.curves if k.startswith("t ")]
    series = []
    for i, name in enumerate(names):
        t, distance = outcome.curves[f"t {name}"], outcome.curves[f"distance {name}"]
        at = int(np.flatnonzero(distance > 1e-7)[-1])
        law = distance[at] * np.exp(-outcome.curves[f"gap {name}"][0] * (t - t[at]))
        series += [
            Series(t, distance, name, colour=i),
            Series(t[law < 1], law[law < 1], "e^(−(μ₁−μ₂)t)" if i == 0 else "", "dashed", colour=i),
        ]
    return Lines(
        "Terminal phase: alignment with the top space of V",
        "time t",
        "farthest token from the top space of V",
        series,
        log_y=True,
        y_floor=1e-9,
    )


def rotation_experiment(setting: Setting) -> Outcome:
    """A narrow cluster under V with a complex pair turns with mean angular speed Im(lambda)."""
    w = AttentionWeights(V=[[1.0, -1.0], [0.5, 1.0]], B=np.diag([2.0, 1.0]))
    omega = spectrum(w).V.frequency
    x0 = sphere.von_mises_fisher(setting.choose(50, 200), [1.0, 0.0], 50.0, seed=setting.seed)
    t_end = setting.choose(40.0, 100.0)
    times = np.linspace(0, t_end, int(20 * t_end) + 1)
    path = run(w, 100.0, x0, times, rtol=1e-8)
    mean = path.points.mean(1)
    angle = np.unwrap(sphere.angles(mean).numpy())
    # Between whole half turns the angle of a non-normal V is not linear: compare over half turns only.
    turns = math.floor((abs(angle[-1] - angle[200])) / math.pi)
    end = first_crossing(times[200:], np.abs(angle[200:] - angle[200]), turns * math.pi)
    measured = turns * math.pi / (end - times[200])
    return Outcome(
        measured / omega,
        rivals={
            "pair of M": measured / spectrum(w).M.frequency,
            "antisymmetric part of V": measured / (0.5 * float((w.V[1, 0] - w.V[0, 1]).abs())),
            "no rotation": 0.0,
        },
        curves={"t": times, "angle": angle, "omega": np.array([omega])},
    )


def rotation_figure(outcome: Outcome) -> Lines:
    """The angle of the cluster."""
    t = outcome.curves["t"]
    sign = math.copysign(1.0, outcome.curves["angle"][-1])
    series = [
        Series(t, outcome.curves["angle"] / math.pi, "angle of the cluster", colour=0),
        Series(t, sign * outcome.curves["omega"][0] * t / math.pi, "Im(λ) t", "dashed", colour=0),
    ]
    return Lines("Terminal rotation for a complex pair of V", "time t", "angle / π", series)


CLAIMS = (
    Claim(
        "terminal-space",
        "At finite beta and large t all tokens align with the dominant space of V, at the rate mu_1 - mu_2 of V.",
        terminal_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="a rate from a log-linear fit of deterministic data over some ten e-folds is good to 2%",
        source=ESTIMATE,
        figure=terminal_figure,
        theme=THEME,
        unit="rate / (mu_1 - mu_2)",
        effort=6,
        rivals={
            "gap of M": "The gap of M = V B^T rules the end, too.",
            "rate of concentration": "Tokens approach the end as fast as they concentrated, at g_in.",
            "tokens stay on E": "Tokens stay on the dominant space of M and never align with that of V.",
        },
    ),
    Claim(
        "terminal-rotation",
        "When a complex pair leads V, clusters rotate for ever with mean angular speed Im(lambda) of V.",
        rotation_experiment,
        expected=1.0,
        tolerance=0.02,
        reason="the cluster has shrunk to a point after a few e-folds; whole half turns are counted",
        source=ESTIMATE,
        figure=rotation_figure,
        theme=THEME,
        unit="speed / Im(lambda)",
        effort=2,
        rivals={
            "pair of M": "The complex pair of M = V B^T sets the speed.",
            "antisymmetric part of V": "The speed is that of V's antisymmetric part, as if V were normal.",
            "no rotation": "The clusters come to rest.",
        },
    ),
)
