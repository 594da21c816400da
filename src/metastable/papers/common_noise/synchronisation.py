"""Claims about many tokens: a common noise brings them together, up to their signs for odd activations."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import CommonNoise
from metastable.measure import Ensemble
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.verdict import ESTIMATE
from metastable.solve import solve

PAPER = "arXiv:2604.26898"
THEME = "Synchronisation by noise"
TOGETHER = (("relu", 3), ("gelu", 4), ("sigmoid", 6), ("constant", 4))
ODD = (("linear", 3), ("tanh", 4), ("erf", 3))
"""Activations with sigma(-z) = -sigma(z), for which the noise at -x is the opposite of that at x."""
TOKENS = 8
TIME, STEP = 10.0, 0.1
"""In units of 1/kappa(1): exponents are -1 and below, so that distances shrink by e^{-10} and more."""
SAMPLES = (60, 400, 25)
"""Systems of every kind."""
CLOSE = 0.05
"""What counts as together: without synchronisation the spread is 1 - 1/8 and more on average."""


def spread(points: Float[Tensor, "*b n d"]) -> np.ndarray:
    """1 - |mean of the tokens|^2, zero at consensus."""
    return 1 - points.mean(-2).square().sum(-1).numpy()


def axial_spread(points: Float[Tensor, "*b n d"]) -> np.ndarray:
    """1 - the largest eigenvalue of the mean of x x^T, zero when all tokens are at x or -x."""
    return 1 - torch.linalg.eigvalsh(points.mT @ points / points.shape[-2])[..., -1].numpy()


def evolved(setting: Setting, activation: str, d: int, stream: int, **options: object) -> Float[Tensor, "m b n d"]:
    """Systems of uniform tokens over time."""
    flow = CommonNoise(activation=activation, **options)  # type: ignore[arg-type]
    count, (first, second) = setting.choose(*SAMPLES), setting.seeds(2, 95, stream)
    start = Ensemble(sphere.uniform(count * TOKENS, d, seed=first).view(count, TOKENS, d))
    t = TIME / flow.covariance.one
    path = solve(flow, start, t, times=21, step=STEP * t / TIME, seed=second, method="euler-maruyama")
    return path.points


def together_experiment(setting: Setting) -> Outcome:
    """The largest median of 1 - |mean|^2 over systems in the end."""
    rows, commons, owns = [], [], []
    curves: dict[str, np.ndarray] = {"t": np.linspace(0, TIME, 21)}
    for k, (activation, d) in enumerate(TOGETHER):
        common, own = (
            np.median(spread(evolved(setting, activation, d, k, independent=own)), axis=1) for own in (False, True)
        )
        commons.append(float(common[-1]))
        owns.append(float(own[-1]))
        rows.append({"activation": activation, "d": d, "common": commons[-1], "independent": owns[-1]})
        curves[f"common {activation}, d = {d}"] = common
        if k == 0:
            curves["independent"] = own
    still = np.median(spread(evolved(setting, "relu", 3, 0, scale=0.0)), axis=1)
    return Outcome(
        max(commons),
        rivals={"independent noise": min(owns), "no noise": float(still[-1])},
        curves=curves,
        table=rows,
    )


def together_figure(outcome: Outcome) -> Lines:
    """Common against independent noise."""
    t = outcome.curves["t"]
    names = [name for name in outcome.curves if name.startswith("common ")]
    series = [
        Series(t, np.maximum(outcome.curves[name], 1e-10), name.removeprefix("common "), colour=i)
        for i, name in enumerate(names)
    ]
    series.append(Series(t, outcome.curves["independent"], "independent noise", "dashed", colour=len(names)))
    title = f"{TOKENS} uniform tokens under a common noise"
    return Lines(title, "κ(1) t", "median of 1 − |mean of the tokens|²", series, log_y=True)


def odd_experiment(setting: Setting) -> Outcome:
    """The largest median of 1 - the largest eigenvalue of the mean of x x^T in the end."""
    axial, plain = [], []
    rows = []
    curves: dict[str, np.ndarray] = {"t": np.linspace(0, TIME, 21)}
    for k, (activation, d) in enumerate(ODD):
        points = evolved(setting, activation, d, 10 + k)
        signless, signed = (np.median(of(points), axis=1) for of in (axial_spread, spread))
        axial.append(float(signless[-1]))
        plain.append(float(signed[-1]))
        rows.append({"activation": activation, "d": d, "up to sign": axial[-1], "with sign": plain[-1]})
        curves |= {f"axial {activation}, d = {d}": signless, f"plain {activation}, d = {d}": signed}
    own = float(np.median(axial_spread(evolved(setting, "linear", 3, 10, independent=True)[-1])))
    rivals = {"with their signs": min(plain), "independent noise": own}
    return Outcome(max(axial), rivals=rivals, curves=curves, table=rows)


def odd_figure(outcome: Outcome) -> Lines:
    """Spread up to signs against spread."""
    curves = outcome.curves
    names = [name.removeprefix("axial ") for name in curves if name.startswith("axial ")]
    series = []
    for i, name in enumerate(names):
        series.append(
            Series(curves["t"], np.maximum(curves[f"axial {name}"], 1e-10), f"{name}, up to sign", colour=i)
        )
        series.append(Series(curves["t"], curves[f"plain {name}"], f"{name}, with sign", "dashed", colour=i))
    title = f"{TOKENS} uniform tokens under a common noise of an odd activation"
    return Lines(title, "κ(1) t", "median spread", series, log_y=True)


CLAIMS = (
    Claim(
        "noise-synchronises",
        "A common noise brings tokens together, an independent one does not: of uniform tokens 1 − |mean|² falls "
        "to zero in most systems (ReLU, GELU, sigmoid and constant activations, d from 3 to 6, 8 tokens).",
        together_experiment,
        expected=0.0,
        tolerance=CLOSE,
        reason=f"after a time {TIME:g}/κ(1) the median is far below {CLOSE:g}; without synchronisation it is 0.9",
        source=PAPER,
        figure=together_figure,
        relation="at most",
        theme=THEME,
        unit="largest median of 1 − |mean|²",
        effort=3,
        rivals={
            "independent noise": "Any noise does it, also one that every token has for itself.",
            "no noise": "Tokens come together without noise.",
        },
    ),
    Claim(
        "odd-activations-split",
        "Odd activations bring tokens together up to their signs only: since W(−x) = −W(x), the tokens end in two "
        "antipodal clusters (linear, tanh and erf).",
        odd_experiment,
        expected=0.0,
        tolerance=CLOSE,
        reason=f"after a time {TIME:g}/κ(1) the median is far below {CLOSE:g}; uniform tokens have 0.4 and more",
        source=ESTIMATE,
        figure=odd_figure,
        relation="at most",
        theme=THEME,
        unit="largest median of 1 − largest eigenvalue",
        effort=2,
        rivals={
            "with their signs": "All tokens come together, as with other activations.",
            "independent noise": "Any noise does it, also one that every token has for itself.",
        },
    ),
)
