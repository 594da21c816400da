"""Claims about the stability of pure modes: the exact criterion, and the published one where it is valid."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from metastable.drawing import MapPanel, Maps, Series
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.spectral_selection.measuring import PAPER
from metastable.papers.verdict import ESTIMATE
from metastable.theory import PureMode, attention_jacobian, selection_weights, split_factor, split_threshold

THEME = "Stability of pure modes"
MARGIN = 1e-9
"""Rates below MARGIN |V| in size are not decided by double precision: such cases are drawn again."""
CASES = 1500, 6000, 1000
"""Random modes of a quick, a full and a small run."""
MAP_BETAS = (0.25, 1.0, 4.0)
MAP_GROUPS = ((4, 4), (4, 2), (4, 1))
"""Inverse temperatures and groups (n_+, n_-) of the panels of the map; the last has a singleton."""
EXTENT = 2.5
"""Eigenvalues of the map are in [-EXTENT, EXTENT]."""


def random_mode(rng: np.random.Generator) -> PureMode:
    """d = 2..5, groups of 0..6 tokens with many singletons, any signs of the eigenvalues, beta |V| = 0.05..10.

    In half of the cases the axis is that of the largest |eigenvalue|, so that stable and unstable modes are common.
    """
    d = int(rng.integers(2, 6))
    plus, minus = (int(size) for size in rng.choice([0, 1, 1, 2, 3, 4, 6], size=2))
    values = rng.normal(size=d) * rng.choice([0.3, 1.0, 3.0])
    if rng.random() < 0.25:
        values = -np.abs(values)
    axis = int(np.argmax(np.abs(values))) if rng.random() < 0.5 else int(rng.integers(d))
    beta = math.exp(rng.uniform(math.log(0.05), math.log(10.0))) / float(np.abs(values).max())
    return PureMode(values, axis, max(plus, 1 - minus), minus, beta)


def jacobian_rate(mode: PureMode) -> float:
    """The largest real part of the eigenvalues of the derivative of the flow."""
    w = selection_weights(np.diag(mode.eigenvalues))
    return float(torch.linalg.eigvals(attention_jacobian(w, mode.beta, mode.points())).real.max())


def drawn_modes(setting: Setting, keep: Callable[[PureMode], bool]) -> list[tuple[PureMode, bool]]:
    """Random modes that pass, each with whether the Jacobian calls it stable."""
    rng = np.random.default_rng(setting.seeds(1, 0)[0])
    found: list[tuple[PureMode, bool]] = []
    while len(found) < setting.choose(*CASES):
        mode = random_mode(rng)
        if keep(mode):
            rate = jacobian_rate(mode)
            if abs(rate) > MARGIN * max(map(abs, mode.eigenvalues)):
                found.append((mode, rate < 0))
    return found


def _mismatches(cases: list[tuple[PureMode, bool]], criterion: Callable[[PureMode], bool]) -> int:
    return sum(criterion(mode) is not stable for mode, stable in cases)


def criterion_experiment(setting: Setting) -> Outcome:
    """Mismatches of the exact criterion, and of the published one, with the sign of the Jacobian's largest rate."""
    cases = drawn_modes(setting, lambda mode: True)
    kinds: dict[str, Callable[[PureMode], bool]] = {
        "all agree": lambda mode: not mode.split and mode.published_applies,
        "one token": lambda mode: not mode.split and not mode.published_applies,
        "split, groups of two and more": lambda mode: mode.split and mode.published_applies,
        "split with a singleton": lambda mode: mode.split and not mode.published_applies,
    }
    rows = []
    for name, belongs in kinds.items():
        part = [case for case in cases if belongs(case[0])]
        rows.append(
            {
                "kind": name,
                "cases": len(part),
                "stable": sum(stable for _, stable in part),
                "mismatches, exact": _mismatches(part, lambda mode: mode.stable),
                "mismatches, published": _mismatches(part, lambda mode: mode.published),
            }
        )
    return Outcome(
        float(_mismatches(cases, lambda mode: mode.stable)),
        curves=stability_map(setting.choose(51, 121, 31)),
        table=rows,
        rivals={
            "published closed form": float(_mismatches(cases, lambda mode: mode.published)),
            "blocks alone": float(_mismatches(cases, lambda mode: max(mode.outer_rates) < 0)),
        },
        note=f"{len(cases)} random modes",
    )


def stability_map(cells: int) -> dict[str, np.ndarray]:
    """Growth of the pure mode with eigenvalues (L, l) for every beta and every pair of groups."""
    axis = np.linspace(-EXTENT, EXTENT, cells)
    growth = np.array(
        [
            [
                [[PureMode((L, other), 0, *groups, beta).growth for L in axis] for other in axis]
                for groups in MAP_GROUPS
            ]
            for beta in MAP_BETAS
        ]
    )
    return {"axis": axis, "growth": growth}


def map_figure(outcome: Outcome) -> Maps:
    """The rate at which a pure mode is left, and the border of the published closed form."""
    axis, growth = outcome.curves["axis"], outcome.curves["growth"]
    panels = [
        MapPanel(f"β = {beta:g}, n₊ : n₋ = {plus} : {minus}", growth[i, j], published_border(beta, plus / minus))
        for i, beta in enumerate(MAP_BETAS)
        for j, (plus, minus) in enumerate(MAP_GROUPS)
    ]
    return Maps(
        "Rate at which a split mode at ±e_p is left: blue is stable, lines border the published form",
        "λ_p",
        "λ_k",
        axis,
        axis,
        panels,
        colour="largest rate",
        columns=len(MAP_GROUPS),
        largest=EXTENT,
    )


def published_border(beta: float, ratio: float) -> list[Series]:
    """The border of the published region in the plane of L and l: l = L sigma, l = L < 0, |L| = |ln r|/(2 beta)."""
    least = max(split_threshold(1.0, ratio) / beta, 1e-6)
    found: list[Series] = []
    for sign in (1.0, -1.0) if least < EXTENT else ():
        values = sign * np.linspace(least, EXTENT, 121)
        upper = np.array([value * split_factor(beta, value, ratio) for value in values])
        lower = values if sign < 0 else np.full_like(values, -EXTENT)
        inside = upper > lower
        found.append(Series(values[inside], np.minimum(upper, EXTENT)[inside], ""))
        if sign < 0:
            found.append(Series(values[inside], lower[inside], ""))
        ends = [lower[inside][0], min(upper[inside][0], EXTENT)]
        found.append(Series([values[inside][0]] * 2, ends, ""))
    return found


def closed_form_experiment(setting: Setting) -> Outcome:
    """The published form on modes without singletons, beside forms that leave a part of it out."""
    cases = drawn_modes(setting, lambda mode: mode.published_applies)
    candidates = {
        "published": lambda mode: mode.published,
        "no threshold": _without_threshold,
        "largest modulus": lambda mode: abs(mode.value) == max(map(abs, mode.eigenvalues)) and mode.published,
        "equal groups": lambda mode: (
            PureMode(mode.eigenvalues, mode.axis, 2, 2 if mode.split else 0, mode.beta).published
        ),
    }
    wrong = {name: float(_mismatches(cases, candidate)) for name, candidate in candidates.items()}
    rows = [{"criterion": name, "mismatches": count, "cases": len(cases)} for name, count in wrong.items()]
    return Outcome(wrong.pop("published"), table=rows, rivals=wrong, note=f"{len(cases)} random modes")


def _without_threshold(mode: PureMode) -> bool:
    """The published form without |L| > |ln r|/(2 beta)."""
    if not mode.split or mode.value == 0:
        return mode.published
    others = [value for k, value in enumerate(mode.eigenvalues) if k != mode.axis]
    most = mode.value * split_factor(mode.beta, mode.value, mode.plus / mode.minus)
    return max(others) < most and (mode.value > 0 or min(others) > mode.value)


NO_MARGIN = (
    "a count: the rates agree to rounding, and modes with a rate below 1e-9 of |V| are drawn again, so that none "
    "may differ"
)
CLAIMS = (
    Claim(
        "pure-mode-criterion",
        lambda setting: (
            "A pure mode is stable iff phi > 0 in every group of two and more and every two-by-two matrix is "
            f"Hurwitz: so says the Jacobian of the flow in all of {setting.choose(*CASES)} random cases, "
            "singletons included."
        ),
        criterion_experiment,
        expected=0.0,
        tolerance=0.0,
        reason=NO_MARGIN,
        source=ESTIMATE,
        figure=map_figure,
        theme=THEME,
        unit="modes on which criterion and Jacobian differ",
        effort=3,
        rivals={
            "published closed form": "The published closed form decides every mode, those with a singleton, too.",
            "blocks alone": "The two-by-two matrices decide; tokens of one group need no condition.",
        },
    ),
    Claim(
        "published-criterion",
        lambda setting: (
            "The published closed form (L > |ln r|/(2 beta) and l_k < L sigma, or their like for L < 0) is exact "
            f"where no group is a singleton ({setting.choose(*CASES)} random cases)."
        ),
        closed_form_experiment,
        expected=0.0,
        tolerance=0.0,
        reason=NO_MARGIN,
        source=PAPER,
        theme=THEME,
        unit="modes on which closed form and Jacobian differ",
        effort=3,
        rivals={
            "no threshold": "The bound l_k < L sigma alone decides, whatever |ln r|/(2 beta) is.",
            "largest modulus": "Only the axis of the largest modulus can be stable.",
            "equal groups": "The groups do not matter: sigma = tanh(beta L) and no threshold.",
        },
    ),
)
