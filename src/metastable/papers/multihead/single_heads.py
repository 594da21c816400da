"""Claims about the rate at which the energy of a single head changes: the radial shadows of the others."""

from __future__ import annotations

import numpy as np
import torch

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import MultiHead
from metastable.observe import HeadEnergies, head_energies
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.multihead.heads import orthogonal, resolved, run, symmetric, together
from metastable.papers.multihead.sources import ESTIMATE
from metastable.papers.reading import farthest, fine, slope, spanned
from metastable.papers.running import gauss

THEME = "Single heads"
CASES = (6, 6, 3, 1.0), (10, 4, 2, 2.0), (16, 8, 4, 1.5), (24, 6, 2, 0.5)
"""(n, d, H, beta) of the balances of energy; the first two in a quick run."""


def identity(found: HeadEnergies) -> dict[str, np.ndarray]:
    """dE_h/dt by the identity and by its rivals, word for word (V2)."""
    F, shadow, mass = found.pull, found.shadow, found.mass
    meet = torch.einsum("hid,kid->hki", F, F)
    shadows = shadow[:, None] * shadow
    alone = torch.diagonal(meet - shadows, dim1=0, dim2=1).T
    own = torch.diagonal(shadows, dim1=0, dim2=1).T
    return {
        "identity": ((meet - shadows) @ mass).sum(1).numpy(),
        "without shadows": ((meet.sum(1) - own) @ mass).numpy(),
        "alone": (alone @ mass).numpy(),
        "shadows only": ((alone - shadow * (shadow.sum(0) - shadow)) @ mass).numpy(),
    }


def balances(flow: MultiHead, tokens: torch.Tensor, t: float) -> dict[str, float]:
    """By formula: the largest error of int dE_h/dt over any head, over the largest change of any E_h."""
    times, weights = gauss(t)
    path = run(flow, tokens, times)
    states = [head_energies(path.measure(k), flow) for k in range(len(path))]
    change = (states[-1].energy - states[0].energy).numpy()
    rates = [identity(state) for state in states]
    integrals = {name: weights @ np.array([rate[name] for rate in rates]) for name in rates[0]}
    return {name: float(np.abs(one - change).max() / np.abs(change).max()) for name, one in integrals.items()}


def _balance_rows(setting: Setting, independent: bool) -> list[dict[str, float]]:
    rows = []
    draw = orthogonal if independent else symmetric
    cases = setting.choose(CASES[:2], CASES)
    for (n, d, heads, beta), seed in zip(cases, setting.seeds(len(cases), 11 + independent), strict=True):
        flow = together(draw(d, heads, seed), beta)
        rows.append(
            {"n": n, "d": d, "heads": heads, "beta": beta}
            | balances(flow, sphere.uniform(n, d, seed), resolved(heads, beta))
        )
    return rows


def identity_experiment(setting: Setting) -> Outcome:
    """Random symmetric heads."""
    rows = _balance_rows(setting, independent=False)
    rivals = {name: max(row[name] for row in rows) for name in ("without shadows", "alone")}
    return Outcome(max(row["identity"] for row in rows), table=rows, rivals=rivals)


def orthogonal_experiment(setting: Setting) -> Outcome:
    """Projectors on orthogonal spaces: only the products of shadows are left of the identity."""
    rows = _balance_rows(setting, independent=True)
    return Outcome(
        max(row["shadows only"] for row in rows),
        table=rows,
        rivals={"no interaction": max(row["alone"] for row in rows)},
    )


TILTED = (20, 40, 2, 1.0), (24, 36, 3, 1.0), (20, 40, 2, 0.5), (30, 40, 4, 1.5)
"""(n, d, H, beta) of nearly orthogonal heads; the first two in a quick run."""
TILTS = (0.0003, 0.001, 0.003, 0.01)
"""Angles by which the spaces of heads lean towards each other."""


def tilt_experiment(setting: Setting) -> Outcome:
    """(1/n^3) sum_i |sum_{h' != h} <f_i^h, f_i^h'>| over the largest dE_h/dt: what orthogonal heads do not have."""
    cases = TILTED[: setting.choose(2, 4)]
    rows, curves = [], {"tilt": np.array(TILTS)}
    for (n, d, heads, beta), seed in zip(cases, setting.seeds(len(cases), 14), strict=True):
        x0, off = sphere.uniform(n, d, seed), []
        for tilt in TILTS:
            found = head_energies(x0, together(orthogonal(d, heads, seed, tilt), beta))
            meet = torch.einsum("hid,id->hi", found.pull, found.pull.sum(0)) - found.pull.square().sum(2)
            off.append(float((meet.abs() @ found.mass).max() / found.production.abs().max()))
        curves[f"{heads} heads, n = {n}, β = {beta:g}"] = np.array(off)
        rows.append({"heads": heads, "n": n, "beta": beta, "off at the last": off[-1], "slope": _log_slope(off)})
    slopes = np.array([row["slope"] for row in rows])
    rivals = {"second order": farthest(slopes - 1, 1.0), "not robust": farthest(slopes + 1, 1.0)}
    return Outcome(farthest(slopes, 1.0), curves=curves, table=rows, rivals=rivals)


def _log_slope(values: list[float]) -> float:
    return slope(np.log(TILTS), np.log(values))


def tilt_figure(outcome: Outcome) -> Lines:
    """The deviations as points, lines of slope 1 through the last of them."""
    tilt, series = outcome.curves["tilt"], []
    grid = fine(tilt)
    for place, (name, off) in enumerate((k, v) for k, v in outcome.curves.items() if k != "tilt"):
        series.append(Series(tilt, off, name, "points", colour=place))
        series.append(Series(grid, off[-1] * grid / tilt[-1], "" if place else "slope 1", "dashed", colour=place))
    label = "error of the formula for orthogonal heads"
    return Lines("Nearly orthogonal heads", "angle ~ ‖M_h M_h'‖", label, series, log_x=True, log_y=True)


CLAIMS = (
    Claim(
        "per-head-identity",
        "dE_h/dt = (1/n^3) sum_i [|P f_i^h|^2 + sum_{h' != h} (<f_i^h, f_i^h'> - <x_i, f_i^h><x_i, f_i^h'>)].",
        identity_experiment,
        expected=0.0,
        tolerance=1e-6,
        reason="integrator and Gauss points are good to 1e-9 of the energy, which changes by a hundredth and more",
        source=ESTIMATE,
        theme=THEME,
        unit="error / largest change of an E_h",
        effort=1,
        rivals={
            "without shadows": "Heads interact through <f_i^h, f_i^h'> only.",
            "alone": "Every head changes by |P f_i^h|^2 alone.",
        },
    ),
    Claim(
        "orthogonal-heads-meet-in-shadows",
        "Heads with M_h M_h' = 0 still interact: dE_h/dt = (1/n^3) sum_i [|P f_i^h|^2 - <x_i, f_i^h> sum_{h' != h} "
        "<x_i, f_i^h'>].",
        orthogonal_experiment,
        expected=0.0,
        tolerance=1e-6,
        reason="integrator and Gauss points are good to 1e-9 of the energy, which changes by a hundredth and more",
        source=ESTIMATE,
        theme=THEME,
        unit="error / largest change of an E_h",
        effort=1,
        rivals={"no interaction": "Orthogonal heads do not feel each other: dE_h/dt = (1/n^3) sum_i |P f_i^h|^2."},
    ),
    Claim(
        "nearly-orthogonal-heads",
        f"When M_h M_h' is of size epsilon, the rates of orthogonal heads are right up to O(epsilon), for angles "
        f"{spanned(TILTS)}.",
        tilt_experiment,
        expected=1.0,
        tolerance=0.05,
        reason="the next order is a few times epsilon = 1% at the largest angle",
        source=ESTIMATE,
        figure=tilt_figure,
        theme=THEME,
        unit="slope of the error in log epsilon",
        effort=0.5,
        rivals={
            "second order": "The error is O(epsilon^2).",
            "not robust": "The error does not vanish with epsilon.",
        },
    ),
)
