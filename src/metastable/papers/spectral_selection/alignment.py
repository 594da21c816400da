"""Claims about alignment: inside the cone at any temperature, and along which axis at low temperature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import SelfAttention
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.reading import listed
from metastable.papers.spectral_selection.measuring import PAPER, ends, starts, words
from metastable.papers.verdict import ESTIMATE
from metastable.solve import solve
from metastable.theory import selection_weights

THEME = "Alignment"
CONES = ((2.0, 1.0, -0.5, -1.0), (1.0, 0.6, 0.2), (1.0, -0.75), (3.0, 2.0, -2.5, 0.0, 1.0))
"""Spectra whose first eigenvalue is positive and exceeds all others in modulus."""
LED_BY_NEGATIVE = ((1.0, 0.5, -2.0), (1.0, -3.0), (1.5, 0.0, 1.0, -2.5))
"""Spectra whose first eigenvalue is the largest, but not in modulus."""
CONE_BETAS = 0.1, 1.0, 5.0
CONE_SIZES = 2, 8, 30
E_FOLDS = 20.0
"""A run lasts so many times 1/(l_1 - max|l_k|): so slowly cold tokens leave a split of a negative axis."""


def cone_experiment(setting: Setting) -> Outcome:
    """The largest 1 - <x_i, e_1> of tokens that start in the cone, anywhere, or with a stronger negative axis."""
    b = setting.choose(10, 50, 4)
    rows: list[dict[str, Any]] = []
    for spectrum in CONES:
        for n in setting.choose(CONE_SIZES, CONE_SIZES, CONE_SIZES[1:2]):
            found = _farthest(spectrum, CONE_BETAS, _cone(setting, b, n, len(spectrum)))
            for beta, inside in zip(CONE_BETAS, found, strict=True):
                rows.append({"eigenvalues": words(spectrum), "n": n, "beta": beta, "largest 1 - x_1": inside})
    anywhere = _farthest(CONES[0], CONE_BETAS[1:], starts(setting, b, 8, 4, 4))
    negative = [_farthest(one, (1.0,), _cone(setting, b, 8, len(one)))[0] for one in LED_BY_NEGATIVE]
    times = np.linspace(0, 12, 61)
    curves = {"t": times}
    for place, beta in enumerate(CONE_BETAS):
        flow = SelfAttention(selection_weights(np.diag(CONES[0])), beta, kernel="dense")
        path = solve(flow, _cone(setting, 1, 30, 4)[0], t=12.0, times=times, rtol=1e-9, atol=1e-12)
        curves[f"angle {place}"] = path.points[..., 1:].norm(dim=2).amax(1).numpy()
    curves["rate"] = np.array([CONES[0][0] - CONES[0][1]])
    return Outcome(
        max(row["largest 1 - x_1"] for row in rows),
        curves=curves,
        table=rows,
        rivals={"from anywhere": max(anywhere), "largest eigenvalue": max(negative)},
        note=f"{b} starts in each of {len(rows)} settings",
    )


def _cone(setting: Setting, systems: int, n: int, d: int) -> Tensor:
    """Uniform tokens on the half of the sphere around e_1."""
    x = starts(setting, systems, n, d, 5, n, d)
    x[..., 0] = x[..., 0].abs()
    return x


def _farthest(spectrum: tuple[float, ...], betas: tuple[float, ...], points: Tensor) -> list[float]:
    """The largest 1 - x_1 of any token at the end, for every beta."""
    gap = abs(spectrum[0] - max(map(abs, spectrum[1:])))
    last = ends(spectrum, betas, points, E_FOLDS / gap)
    found: list[float] = (1 - last[..., 0].amin((1, 2))).tolist()
    return found


def cone_figure(outcome: Outcome) -> Lines:
    """The sine of the largest angle to e_1, and its final rate."""
    t, rate = outcome.curves["t"], float(outcome.curves["rate"][0])
    series = []
    for place, beta in enumerate(CONE_BETAS):
        angle = outcome.curves[f"angle {place}"]
        series.append(Series(t, angle, f"β = {beta:g}", colour=place))
        late = t >= 6
        line = angle[late][0] * np.exp(-rate * (t[late] - 6))
        label = "e^{−(λ₁−λ₂)t}" if beta == CONE_BETAS[-1] else ""
        series.append(Series(t[late], line, label, "dashed", colour=place))
    title = f"30 tokens inside the cone align, λ = {words(CONES[0])}"
    return Lines(title, "time t", "sine of the largest angle to e₁", series, log_y=True)


AXES = ((1.0, -2.0), (-1.5, 1.0), (2.0, -1.0), (1.0, 0.5, -2.0), (2.5, 1.0, -1.5))
"""Eigenvalues of V; in the first, second and fourth the largest modulus is a negative one."""
AXIS_BETA = 30.0


def axis_experiment(setting: Setting) -> Outcome:
    """Mean |<x, e>| of cold tokens for the axis of largest modulus, and for that of the largest eigenvalue."""
    n = setting.choose(200, 400)
    rows: list[dict[str, Any]] = []
    curves: dict[str, np.ndarray] = {}
    for place, spectrum in enumerate(AXES):
        values = np.array(spectrum)
        strongest, largest = int(np.argmax(np.abs(values))), int(np.argmax(values))
        squares = np.sort(values**2)[::-1]
        # From 1/n beside the separatrix to 1/n beside the axis: each at its own rate of the zero-temperature flow.
        rate_in, rate_out = (squares[0] - squares[1]) / np.sqrt(squares[:2])
        t = math.log(2 * n) / rate_out + (math.log(2 * n) + 3) / rate_in
        x0 = sphere.equispaced(n) if len(values) == 2 else sphere.fibonacci(n)
        times = np.linspace(0, t, 41)
        w = selection_weights(np.diag(values))
        path = solve(SelfAttention(w, AXIS_BETA), x0, t=t, times=times, rtol=1e-6)
        along = path.points.abs().mean(1).numpy()
        sides = float(path.end.points[:, strongest].sign().mean().abs())
        rows.append(
            {
                "eigenvalues": words(spectrum),
                "t": t,
                "mean |x| along the largest |l|": float(along[-1, strongest]),
                "mean |x| along the largest l": float(along[-1, largest]),
                "|n_+ - n_-|/n": sides,
            }
        )
        curves |= {f"t {place}": times / t, f"along {place}": along[:, strongest]}
    return Outcome(
        min(row["mean |x| along the largest |l|"] for row in rows),
        curves=curves,
        table=rows,
        rivals={"largest eigenvalue": min(row["mean |x| along the largest l"] for row in rows)},
        note="both sides hold the same number of tokens to "
        f"{max(row['|n_+ - n_-|/n'] for row in rows):.1%} of them",
    )


def axis_figure(outcome: Outcome) -> Lines:
    """What the mean modulus along the strongest axis lacks of 1."""
    series = [
        Series(outcome.curves[f"t {place}"], 1 - outcome.curves[f"along {place}"], f"λ = {words(spectrum)}")
        for place, spectrum in enumerate(AXES)
    ]
    return Lines(
        f"Cold tokens choose the axis of largest |λ|, β = {AXIS_BETA:g}",
        "time over the length of the run",
        "1 − mean |⟨x, e⟩|",
        series,
        log_y=True,
        y_floor=1e-8,
    )


CLAIMS = (
    Claim(
        "cone-alignment",
        "If one positive eigenvalue exceeds all others in modulus, tokens with <x_i, e_1> > 0 all align at e_1, "
        f"whatever n and beta are (n up to {CONE_SIZES[-1]}, beta = {listed(CONE_BETAS)}).",
        cone_experiment,
        expected=0.0,
        tolerance=1e-6,
        reason=f"runs of {E_FOLDS:g}/(l_1 - max|l_k|), at least as many e-folds of the sine: half of them may go "
        "into leaving the equator, the rest leaves e^-20 of 1 - x_1",
        source=PAPER,
        figure=cone_figure,
        theme=THEME,
        unit="largest 1 - <x_i, e_1> at the end",
        effort=5,
        rivals={
            "from anywhere": "Tokens align from everywhere on the sphere, not only inside the cone.",
            "largest eigenvalue": "The largest eigenvalue is enough; a negative one may be larger in modulus.",
        },
    ),
    Claim(
        "cold-selection-axis",
        f"At low temperature (beta = {AXIS_BETA:g}) tokens gather on both sides of the axis of largest |lambda|, "
        "since M = V B^T = V^2.",
        axis_experiment,
        expected=1.0,
        tolerance=0.005,
        reason="all but the tokens within 1/(2n) of the separatrix, less than one of n >= 200, have arrived to a "
        "part in e^3 n",
        source=ESTIMATE,
        figure=axis_figure,
        theme=THEME,
        unit="mean |<x, e>|",
        effort=4,
        rivals={"largest eigenvalue": "Tokens gather on the axis of the largest eigenvalue, signs counted."},
    ),
)
