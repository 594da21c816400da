"""Claims about derivatives of a token by the weights: their closed form with infinite context, and the adjoint."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines
from metastable.flows import SelfAttention
from metastable.meanfield import Uniform, nodes
from metastable.measure import Measure
from metastable.papers.agreement import agreement_figure
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.verdict import ESTIMATE
from metastable.solve import gradient, solve
from metastable.theory import bessel_ratio, weight_derivative
from metastable.weights import AttentionWeights

THEME = "Backward"
CLOSED = ((2, 2.0, 1.0, 256), (2, 8.0, 0.5, 256), (3, 3.0, 0.8, 450), (3, 1.0, 1.5, 450))
"""(d, beta, T, nodes that stand for infinite context)."""
TIGHT = 1e-10
"""Tolerance of the runs whose derivatives are compared digit by digit."""
STEP = 1e-4
"""Step of central differences; their error, STEP^2 times a third derivative, is about 1e-7."""
AGREEMENT = 1e-6
"""What adjoint, central differences and nodes may be apart: the error of the differences with a factor ten."""
SAMPLED = ((2, 4.0, 1.0, 24), (3, 3.0, 0.8, 40), (4, 2.0, 0.6, 60))
"""(d, beta, T, tokens of an iid context) at which the adjoint is compared with central differences."""
DIRECTIONS = 3
"""Random directions of V and B along which they are taken."""


def observer(d: int, seed: int) -> tuple[Tensor, Tensor]:
    """A point (1, d), and a direction tangent to the sphere there."""
    x, u = sphere.uniform(2, d, seed=seed)
    u = u - (u @ x) * x
    return x[None], u / torch.linalg.vector_norm(u)


def with_observer(context: Measure, x: Tensor) -> Measure:
    """The context, and last an observer (1, d) of mass zero."""
    return Measure(torch.cat([context.points, x]), torch.cat([context.mass, torch.zeros(1, dtype=torch.float64)]))


def adjoint(
    context: Measure, x: Tensor, u: Tensor, w: AttentionWeights, beta: float, t: float
) -> dict[str, Tensor]:
    """The derivatives of <u, x(T)> by V and B, the context moving along."""
    rho = with_observer(context, x)
    found = gradient(SelfAttention(w, beta), rho, t, lambda ends: ends[-1] @ u, rtol=TIGHT, atol=TIGHT)
    return {"V": found.V, "B": found.B}


def unit_matrices(d: int) -> list[np.ndarray]:
    """All matrices with a single entry, 1."""
    return list(np.eye(d * d).reshape(-1, d, d))


def closed_experiment(setting: Setting) -> Outcome:
    """Largest difference of adjoint and formula over all entries of V and B, relative to the largest entry."""
    rows, found = [], []
    rivals: dict[str, list[float]] = {"context at rest": [], "length one": [], "B like V": []}
    curves: dict[str, np.ndarray] = {}
    for place, (d, beta, t, count) in enumerate(CLOSED):
        law = Uniform(d)
        context = nodes(law, d, count, kind="equispaced" if d == 2 else "gauss")
        x, u = observer(d, setting.seeds(1, 50, place)[0])
        by = adjoint(context, x, u, AttentionWeights(V=np.eye(d), B=np.eye(d)), beta, t)

        def formula(of: str, x: Tensor = x, u: Tensor = u, d: int = d, t: float = t, beta: float = beta) -> Tensor:
            entries = [float(weight_derivative(x, D, t, beta, of)[0] @ u) for D in unit_matrices(d)]
            return torch.tensor(entries, dtype=torch.float64).view(d, d)

        expected = {of: formula(of) for of in "VB"}
        size = max(float(one.abs().max()) for one in expected.values())

        def off(other: dict[str, Tensor], by: dict[str, Tensor] = by, size: float = size) -> float:
            return max(float((by[of] - other[of]).abs().max()) for of in "VB") / size

        # At rest every direction acts for the time T: <u, A P_x D x> T, as a matrix A T u x^T.
        resting = bessel_ratio(d, beta) * t * torch.outer(u, x[0])
        found.append(off(expected))
        rivals["context at rest"].append(off({"V": resting, "B": resting.T}))
        rivals["length one"].append(off({of: one / bessel_ratio(d, beta) for of, one in expected.items()}))
        rivals["B like V"].append(off({"V": expected["V"], "B": expected["V"]}))
        label = f"d = {d}, β = {beta:g}, T = {t:g}"
        curves[f"measured {label}"] = torch.cat([by["V"], by["B"]]).numpy().ravel()
        curves[f"expected {label}"] = torch.cat([expected["V"], expected["B"]]).numpy().ravel()
        rows.append({"d": d, "beta": beta, "T": t, "nodes": context.n, "largest entry": size, "off by": found[-1]})
    return largest_outcome(found, rivals, curves, rows)


def largest_outcome(
    found: list[float], rivals: dict[str, list[float]], curves: dict[str, np.ndarray], rows: list[dict[str, Any]]
) -> Outcome:
    """The worst case, against the best of every rival."""
    return Outcome(
        max(found),
        rivals={name: min(values) for name, values in rivals.items()},
        curves=curves,
        table=rows,
        note="the largest over the cases of the table; of a rival the smallest",
    )


def closed_figure(outcome: Outcome) -> Lines:
    """Adjoint against formula."""
    title = "Derivatives of ⟨u, x(T)⟩ by the entries of V and B, infinite context"
    return agreement_figure(outcome, title, "formula", "adjoint")


def central(
    context: Measure, x: Tensor, u: Tensor, w: AttentionWeights, beta: float, t: float, D: dict[str, np.ndarray]
) -> float:
    """The derivative of <u, x(T)> for V + eps D_V, B + eps D_B, by central differences."""
    rho = with_observer(context, x)
    ends = []
    for h in (STEP, -STEP):
        moved = AttentionWeights(V=w.V.numpy() + h * D["V"], B=w.B.numpy() + h * D["B"])
        path = solve(SelfAttention(moved, beta), rho, t=t, rtol=TIGHT, atol=TIGHT)
        ends.append(float(path.end.points[-1] @ u))
    return (ends[0] - ends[1]) / (2 * STEP)


def adjoint_experiment(setting: Setting) -> Outcome:
    """Largest difference of adjoint and central differences along random directions, iid context."""
    rows, found = [], []
    rivals: dict[str, list[float]] = {"another context": [], "V alone": []}
    curves: dict[str, np.ndarray] = {}
    for place, (d, beta, t, n) in enumerate(SAMPLED):
        seed, other, third = setting.seeds(3, 60, place)
        random = np.random.default_rng(third)
        w = AttentionWeights(*(np.eye(d) + 0.3 * random.standard_normal((d, d)) for _ in "VB"))
        context = Measure(sphere.uniform(n, d, seed=seed))
        x, u = observer(d, other)
        back = adjoint(context, x, u, w, beta, t)
        larger = adjoint(Measure(sphere.uniform(8 * n, d, seed=seed)), x, u, w, beta, t)
        size = float(torch.cat([back["V"], back["B"]]).norm())
        apart: dict[str, list[float]] = {name: [] for name in ("", *rivals)}
        pairs = []
        for _ in range(DIRECTIONS):
            D = {of: random.standard_normal((d, d)) / d for of in "VB"}
            expected = central(context, x, u, w, beta, t, D)
            of_V, of_B = (float((back[of].numpy() * D[of]).sum()) for of in "VB")
            pairs.append((expected, of_V + of_B))
            apart[""].append(abs(of_V + of_B - expected) / size)
            apart["V alone"].append(abs(of_V - expected) / size)
            others = sum(float((larger[of].numpy() * D[of]).sum()) for of in "VB")
            apart["another context"].append(abs(others - expected) / size)
        found.append(max(apart[""]))
        curves[f"expected d = {d}, n = {n}"], curves[f"measured d = {d}, n = {n}"] = np.array(pairs).T
        for name in rivals:
            rivals[name].append(max(apart[name]))
        rows.append({"d": d, "beta": beta, "T": t, "n": n, "size": size, "off by": found[-1]})
    return largest_outcome(found, rivals, curves, rows)


def adjoint_figure(outcome: Outcome) -> Lines:
    """Adjoint against central differences."""
    title = "Derivatives of ⟨u, x(T)⟩ along random directions, iid context"
    return agreement_figure(outcome, title, "central differences", "adjoint")


CLAIMS = (
    Claim(
        "weight-derivative-closed",
        "With infinite uniform context the derivative of a token by V in the direction D is A_d(beta) [(e^(sigma_2 "
        "T) - 1)/sigma_2 P_x S x + T K x], S and K the traceless symmetric and the antisymmetric part of D, and by "
        "B the same with D^T: all entries, on the circle and on S^2.",
        closed_experiment,
        expected=0.0,
        tolerance=AGREEMENT,
        reason="nodes integrate the modes that matter to rounding, and the adjoint is exact for its run, whose "
        "tolerance is 1e-10",
        source=ESTIMATE,
        figure=closed_figure,
        relation="at most",
        theme=THEME,
        unit="largest difference / largest entry",
        effort=2,
        rivals={
            "context at rest": "The weights act on the token alone, for the time T.",
            "length one": "The attended mean has length one, as at zero temperature.",
            "B like V": "B acts like V, with D and not D^T.",
        },
    ),
    Claim(
        "adjoint-is-central",
        "The adjoint, backward in time through token and context, gives the digits of central differences, for "
        "random weights and iid contexts in two, three and four dimensions.",
        adjoint_experiment,
        expected=0.0,
        tolerance=AGREEMENT,
        reason="central differences with a step of 1e-4 have an error of 1e-8 times a third derivative, and that "
        "of the tolerance over the step, 1e-6",
        source=ESTIMATE,
        figure=adjoint_figure,
        relation="at most",
        theme=THEME,
        unit="largest difference / norm of the gradient",
        effort=3,
        rivals={
            "another context": "The derivative does not depend on the sample: that of eight times as many tokens.",
            "V alone": "The derivative by B is left out.",
        },
    ),
)
