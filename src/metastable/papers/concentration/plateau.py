"""Claims about what stays of W2: no floor for symmetric data, one of order 1/beta, and that a floor stays."""

from __future__ import annotations

import math

import numpy as np

from metastable.drawing import Lines, Series, shaded
from metastable.meanfield import Harmonics, Law, Skewed, Uniform, nodes, reference_skew
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.families import commuting, plain, sheared
from metastable.papers.concentration.floor import THEME, exponent, theorem
from metastable.papers.concentration.measuring import distance_curve, distances, run
from metastable.papers.concentration.sources import ESTIMATE
from metastable.papers.reading import listed
from metastable.theory import limit

COLLAPSE_LAWS: dict[str, Law] = {
    "skewed": reference_skew(),
    "symmetric": Harmonics(cosine=(0.0, 0.5)),
    "mirrored": Skewed([1.0, 0.0], 0.5),
}


def collapse_experiment(setting: Setting) -> Outcome:
    """Floor of symmetric data relative to that of skewed data, same beta, same times; mirrored data beside them."""
    beta, times = 64.0, np.linspace(0, setting.choose(12.0, 16.0), setting.choose(19, 37))
    tol = setting.choose(1e-3, 1e-4)
    curves = {name: distance_curve(plain(), beta, law, times, tol) for name, law in COLLAPSE_LAWS.items()}
    skewed = float(curves["skewed"].min())
    return Outcome(
        float(curves["symmetric"].min()) / skewed,
        curves={"t": times, "beta": np.array([beta]), **curves},
        table=[{"law": name, "smallest W2": float(w2.min())} for name, w2 in curves.items()],
        rivals={
            "a mirror is enough": float(curves["mirrored"].min()) / skewed,
            "1/beta remains": 1 / beta / skewed,
        },
    )


def collapse_figure(outcome: Outcome) -> Lines:
    """All curves."""
    t = outcome.curves["t"]
    series = [Series(t, outcome.curves[k], f"{k} law") for k in COLLAPSE_LAWS]
    title = f"The floor collapses for symmetric data, B = I, β = {outcome.curves['beta'][0]:g}"
    return Lines(title, "time t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


def symmetric_betas(setting: Setting) -> np.ndarray:
    """Inverse temperatures between which the exponent of the symmetric floor is fitted."""
    return np.array(setting.choose((128.0, 160.0, 192.0), (256.0, 512.0, 1024.0)))


def symmetric_floor_experiment(setting: Setting) -> Outcome:
    """Smallest W2 over time of the uniform law under G(0.5), for each beta: its exponent in beta."""
    betas, w = symmetric_betas(setting), sheared(0.5)
    curves, rows = {"beta": betas}, []
    for beta in betas:
        # Zero temperature, about e^{-t/2}, has to fall well below the floor, about 5/beta; it leaves at 0.12 beta.
        times = np.linspace(0, 2 * math.log(beta / 5) + 2.6, setting.choose(17, 33))
        w2 = distance_curve(w, beta, Uniform(2), times, tol=setting.choose(1e-3, 1e-4))
        least = int(np.argmin(w2))
        rows.append({"beta": beta, "floor": w2[least], "at t": times[least], "beta * floor": beta * w2[least]})
        curves |= {f"t {beta:g}": times, f"W2 {beta:g}": w2}
    found = np.array([row["floor"] for row in rows])
    curves["floor"] = found
    return Outcome(
        exponent(betas, found),
        curves=curves,
        table=rows,
        rivals={"beta^(-1/2)": -0.5, "the theorem's": exponent(betas, theorem(betas)), "beta^(-3/2)": -1.5},
    )


def symmetric_floor_figure(outcome: Outcome) -> Lines:
    """The curves down to their floors, scaled by beta."""
    betas, curves = outcome.curves["beta"], outcome.curves
    scaled = [(curves[f"t {b:g}"], b * curves[f"W2 {b:g}"]) for b in betas]
    series = shaded(scaled, [f"β = {b:g}" for b in betas])
    end = max(float(t[-1]) for t, _ in scaled)
    level = np.full(2, betas[-1] * curves["floor"][-1])
    series.append(Series(np.array([0.0, end]), level, "one floor/β for all", "dotted"))
    return Lines("Floor of W₂ for uniform data, G(0.5)", "time t", "β · W₂(ρ_t, Π#ρ₀)", series, log_y=True)


PLATEAU_FROM = 15.0
"""Time from which W2 should have stopped falling: what is left of the decay is e^{-7.5}, 1% of the floor."""


def plateau_end(setting: Setting) -> float:
    """Time up to which the law is watched."""
    return float(setting.choose(60.0, 200.0, 40.0))


def plateau_experiment(setting: Setting) -> Outcome:
    """Largest late W2 over the smallest ever, V and V B^T sharing their dominant space; others beside it."""
    beta = 64.0
    times = np.concatenate(
        [np.linspace(0, PLATEAU_FROM, 31), np.linspace(PLATEAU_FROM + 1, plateau_end(setting), 9)]
    )
    n, late = setting.choose(1000, 1600, 800), times >= PLATEAU_FROM
    curves, ratio = {"t": times}, {}
    for name, w in (("I", plain()), ("G(0.5)", sheared(0.5)), ("C", commuting())):
        few = n if name == "I" else 400  # the others leave by a factor
        rho0 = nodes(reference_skew(), 2, few, kind="graded", axis=[1.0, 0.0], depth=14.0)
        curves[name] = distances(run(w, beta, rho0, times, rtol=1e-6), limit(w, rho0))
        ratio[name] = float(curves[name][late].max() / curves[name].min())
    return Outcome(
        ratio["I"],
        curves=curves,
        rivals={
            "for any V: G(0.5)": ratio["G(0.5)"],
            "for any V: C": ratio["C"],
            "the decay goes on": math.exp((times[-1] - PLATEAU_FROM) / 2),
        },
    )


def plateau_figure(outcome: Outcome) -> Lines:
    """The curves."""
    words = {"I": "V = diag(2, 1), B = I", "G(0.5)": "G(0.5)", "C": "V = diag(1, 2), B = diag(3, 1)"}
    series = [Series(outcome.curves["t"], outcome.curves[name], label) for name, label in words.items()]
    return Lines("Metastable plateau, β = 64, skewed data", "time t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


CLAIMS = (
    Claim(
        "floor-collapse",
        "For antipodally symmetric data the two crossings cancel and the floor disappears (B = I).",
        collapse_experiment,
        expected=0.1,
        tolerance=0.0,
        reason="the skewed floor is of order beta^{-1/2}; without it what e^{-gt/2} has left is at most 5% of it",
        source=ESTIMATE,
        figure=collapse_figure,
        relation="at most",
        theme=THEME,
        unit="floor symmetric / skewed",
        effort=5,
        rivals={
            "a mirror is enough": "Data that are symmetric under x_2 -> -x_2 have no floor either.",
            "1/beta remains": "Symmetric data keep a floor of 1/beta with B = I, too.",
        },
    ),
    Claim(
        "symmetric-floor-exponent",
        "When B^T e is not parallel to e, symmetric data keep a floor of W2 too, of order 1/beta: the distance of "
        "the clusters from E.",
        symmetric_floor_experiment,
        expected=-1.0,
        tolerance=lambda setting: setting.choose(0.3, 0.05),
        reason=lambda setting: (
            f"exponent of the smallest W2 over t on beta = {listed(symmetric_betas(setting))}; beta * floor is 20% "
            "above its limit at beta = 128, 4% at 256 and 1% at 1024"
        ),
        source=ESTIMATE,
        figure=symmetric_floor_figure,
        theme=THEME,
        unit="exponent of beta",
        effort=14,
        rivals={
            "beta^(-1/2)": "The floor scales as that of skewed data.",
            "the theorem's": "The floor scales as the theorem's bound, sqrt(log(beta+1)/beta).",
            "beta^(-3/2)": "The crossings cancel to the next half order.",
        },
    ),
    Claim(
        "plateau",
        lambda setting: (
            "After concentration the law stays: when V and V B^T share their dominant space, W2 stays at its floor "
            f"(watched until t = {plateau_end(setting):g})."
        ),
        plateau_experiment,
        expected=1.0,
        tolerance=0.05,
        reason=f"what is left of the decay at t = {PLATEAU_FROM:g} is 1% of the floor; the last nodes at the "
        "separatrix, which end on either side, are another 2% of it",
        source=ESTIMATE,
        figure=plateau_figure,
        theme=THEME,
        unit=f"largest W2 for t >= {PLATEAU_FROM:g} / smallest ever",
        effort=6,
        rivals={
            "for any V: G(0.5)": "W2 stays at its floor when V prefers another direction than V B^T, too.",
            "for any V: C": "The same, with V and B that commute.",
            "the decay goes on": "W2 goes on falling like e^{-gt/2}: there is no floor.",
        },
    ),
)
