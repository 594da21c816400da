"""The floor of W2 on S^2 with E a point pair: mass that crosses the separatrix, for several laws and weights."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from metastable.drawing import Lines, shaded
from metastable.meanfield import Skewed, nodes
from metastable.measure import Measure
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.concentration.measuring import distances, run
from metastable.papers.concentration.sources import ESTIMATE
from metastable.papers.reading import beside, farthest, first_crossing
from metastable.weights import AttentionWeights

THEME = "The curve W2(t)"


@dataclass(frozen=True)
class Case:
    """V = diag(top, rest, rest), B = I, f_0 = 1 + tilt <e1, x>, at one inverse temperature."""

    beta: float
    tilt: float = 0.5
    top: float = 2.0
    rest: float = 1.0

    @property
    def floor(self) -> float:
        """2 sqrt(l1 a/(4 g beta)): l1 d log f_0/(2 g beta) of the separatrix, whose length is 2 pi of 4 pi."""
        return 2 * math.sqrt(self.top * self.tilt / (4 * (self.top - self.rest) * self.beta))

    @property
    def label(self) -> str:
        """In the legend."""
        return f"β = {self.beta:g}, a = {self.tilt:g}, λ = {self.top:g}, {self.rest:g}"


def cases(setting: Setting) -> tuple[Case, ...]:
    """Tilt, l1/g and beta take two values in a quick run; in a full one three and more."""
    if setting.small:
        return Case(24.0), Case(24.0, tilt=0.25), Case(24.0, rest=0.0)
    if setting.quick:
        return Case(24.0, tilt=0.25), Case(24.0, rest=0.0), Case(36.0)
    low = Case(96.0), Case(96.0, tilt=0.25), Case(96.0, tilt=0.75), Case(96.0, rest=0.0), Case(96.0, top=4.0)
    return (*low, Case(192.0), Case(384.0), Case(768.0))


def next_order(setting: Setting) -> float:
    """2/beta of the smallest beta: the relative size of what a first order in 1/beta leaves out, with a factor
    2."""
    return 2 / min(case.beta for case in cases(setting))


def measured(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """(t, W2(rho_t, Pi#rho_0)) of graded nodes until zero temperature is an eighth of the floor: 1% of its
    square."""
    gap = case.top - case.rest
    end = 2 * math.log(8 * math.sqrt(2) / case.floor) / gap
    times = np.linspace(0, end, 33)
    rho0 = nodes(
        Skewed([1.0, 0.0, 0.0], case.tilt),
        3,
        # The width of the kernel, beta^{-1/2}, sets the spacing in both directions.
        max(int(40 * case.beta), 1000),
        kind="graded",
        axis=[1.0, 0.0, 0.0],
        depth=gap * end - 2,
    )
    w = AttentionWeights(V=np.diag([case.top, case.rest, case.rest]), B=np.eye(3))
    # The nodes nearest the equator decide the mass on either side; Pi#rho_0 has the exact one.
    plus = 0.5 + case.tilt / 4
    axis = torch.tensor([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]], dtype=torch.float64)
    path = run(w, case.beta, rho0, times, rtol=1e-5, attention_rtol=1e-6)
    w2 = distances(path, Measure(axis, [plus, 1 - plus]))
    # A whole row of nodes is on one side: 5% of the floor. The separatrix between two rows is known far better.
    rows, exact = crossed_mass(case, path.points[0], path.points[-1], path.mass)
    w2[-1] = math.sqrt(w2[-1] ** 2 + 4 * (exact - rows))
    return times, w2


def crossed_mass(case: Case, start: Tensor, end: Tensor, mass: Tensor) -> tuple[float, float]:
    """Mass that ends on the other side than it started: by counting nodes, and from the interpolated separatrix.

    Near the separatrix the tangent of the latitude at the end is linear in that at the start, as for e^{tM}.
    """
    counted = float(mass[start[:, 0] * end[:, 0] < 0].sum())
    heights, row = torch.unique((start[:, 0] * 1e12).round(), return_inverse=True)
    tangent = end[:, 0] / (1 - end[:, 0].square()).clamp(min=1e-24).sqrt()
    members = torch.bincount(row, minlength=len(heights))
    mean = torch.zeros(len(heights), dtype=torch.float64).index_add_(0, row, tangent) / members
    height = (heights / 1e12).numpy()
    place = first_crossing(height / np.sqrt(1 - height**2), mean.numpy(), 0.0)
    z = place / math.sqrt(1 + place**2)
    return counted, abs(z + case.tilt * z**2 / 2) / 2


def floor_experiment(setting: Setting) -> Outcome:
    """Floor on S^2, E a point pair, B = I: measured over predicted, of all cases the one farthest from 1."""
    rows, ratios = [], []
    curves: dict[str, np.ndarray] = {}
    rivals: dict[str, list[float]] = {
        "circle's constant": [],
        "without l1/g": [],
        "linear in a": [],
        "beta^(-1/4)": [],
    }
    for i, case in enumerate(cases(setting)):
        times, w2 = measured(case)
        ratio = float(w2[-1] / case.floor)
        ratios.append(ratio)
        rivals["circle's constant"].append(ratio * math.sqrt(math.pi / 2))
        rivals["without l1/g"].append(ratio * math.sqrt(case.top / (case.top - case.rest)))
        rivals["linear in a"].append(ratio / math.sqrt(case.tilt))
        rivals["beta^(-1/4)"].append(ratio / case.beta**0.25)
        rows.append(
            {
                "beta": case.beta,
                "a": case.tilt,
                "l1": case.top,
                "l2": case.rest,
                "W2 at the end": float(w2[-1]),
                "predicted floor": case.floor,
                "ratio": ratio,
            }
        )
        curves |= {f"t {i}": times, f"W2 {i}": w2, f"floor {i}": np.array([case.floor])}
    labels = np.array([[c.beta, c.tilt, c.top, c.rest] for c in cases(setting)])
    return Outcome(
        farthest(ratios, 1.0),
        rivals={name: farthest(values, 1.0) for name, values in rivals.items()},
        curves=curves | {"cases": labels},
        table=rows,
    )


def floor_figure(outcome: Outcome) -> Lines:
    """Curves and floors, each pair in one shade."""
    labels = [Case(*row).label for row in outcome.curves["cases"].tolist()]
    number = range(len(labels))
    measured = shaded([(outcome.curves[f"t {i}"], outcome.curves[f"W2 {i}"]) for i in number], labels)
    floors = [
        (outcome.curves[f"t {i}"], np.full(len(outcome.curves[f"t {i}"]), outcome.curves[f"floor {i}"][0]))
        for i in number
    ]
    predicted = shaded(floors, [f"predicted floor, {label}" for label in labels], "dashed")
    series = beside(measured, predicted)
    return Lines("Graded nodes on S², V = diag(λ₁, λ₂, λ₂), B = I", "time t", "W₂(ρ_t, Π#ρ₀)", series, log_y=True)


CLAIMS = (
    Claim(
        "floor-on-the-sphere",
        lambda setting: (
            "On S^2 with E a point pair the floor for f_0 = 1 + a <e1, x> is 2 sqrt(l1 a/(4 g beta)), g = l1 "
            "- l2, for "
            f"all of {len(cases(setting))} choices of a, l1, l2 and beta."
        ),
        floor_experiment,
        expected=1.0,
        tolerance=next_order,
        reason="the next order in 1/beta, with a factor of two",
        source=ESTIMATE,
        figure=floor_figure,
        theme=THEME,
        unit="measured / predicted, farthest from 1",
        effort=20,
        rivals={
            "circle's constant": "The constant is that of the circle, l1 a/(2 pi g beta).",
            "without l1/g": "The floor does not depend on the spectrum of V.",
            "linear in a": "The floor is proportional to the tilt a, not to its root.",
            "beta^(-1/4)": "The floor falls like beta^(-1/4), with the same constant.",
        },
    ),
)
