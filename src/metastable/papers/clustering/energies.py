"""Claims about the energy: it grows along both flows, and the squared speed says by how much."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from metastable import sphere
from metastable.drawing import Lines, Series
from metastable.flows import SelfAttention, UnnormalizedAttention, interaction_energy
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.clustering.sources import ESTIMATE, PAPER
from metastable.papers.reading import listed
from metastable.papers.running import gauss
from metastable.solve import solve
from metastable.weights import AttentionWeights

THEME = "Energy"
BETAS = (0.5, 1.0, 3.0)
"""Inverse temperatures of the runs, with |B| = 1."""
END, NODES = 3.0, 40
"""Length of the runs in their unit of time, 1 for softmax and e^{-beta} for the unnormalised flow; and Gauss nodes
at which their speed is read."""
DIMENSION = 4
"""Dimension of the tokens."""


def matrices(setting: Setting, symmetric: bool = True) -> dict[str, np.ndarray]:
    """The identity, and random matrices of norm one with eigenvalues of both signs."""
    rng = np.random.default_rng([setting.seed, int(symmetric)])
    found = {"identity": np.eye(DIMENSION)} if symmetric else {}
    for place in range(setting.choose(2, 6, 1)):
        drawn = rng.normal(size=(DIMENSION, DIMENSION))
        drawn = (drawn + drawn.T) / 2 if symmetric else drawn
        found[f"random {place + 1}"] = drawn / np.linalg.norm(drawn, 2)
    return found


def _balance(B: np.ndarray, beta: float, normalized: bool, seed: int) -> dict[str, np.ndarray]:
    """Energy at the nodes and at both ends, and the sums of m |v|^2 and of m Z |v|^2 at the nodes.

    V = B. Z = E e^{beta <x, B y>}; the unnormalised velocity is v, that of softmax v/Z.
    """
    end = END if normalized else END * math.exp(-beta)
    times, weight = gauss(end, panels=1, order=NODES)
    w = AttentionWeights(V=B, B=B)
    flow = (SelfAttention if normalized else UnnormalizedAttention)(w, beta, rtol=None)
    path = solve(flow, sphere.uniform(30, DIMENSION, seed=seed), end, times, rtol=1e-10, atol=1e-12)
    energy = np.array([interaction_energy(x, path.mass, w, beta) for x in path.points])
    plain, weighted = np.empty(NODES), np.empty(NODES)
    for place, x in enumerate(path.points[1:-1]):
        speed = flow.velocity(0.0, x, path.mass).square().sum(1)
        plain[place] = float(path.mass @ speed)
        weighted[place] = float(path.mass @ (_partition(x, path.mass, w, beta) * speed))
    return {"t": times, "energy": energy, "plain": plain, "weighted": weighted, "weight": weight[1:-1]}


def _partition(points: Tensor, mass: Tensor, w: AttentionWeights, beta: float) -> Tensor:
    return torch.exp(beta * points @ w.B @ points.T) @ mass


def _residual(balance: dict[str, np.ndarray], dissipation: str) -> float:
    gained = balance["energy"][-1] - balance["energy"][0]
    return float(abs(balance["weight"] @ balance[dissipation] / gained - 1))


def _experiment(setting: Setting, normalized: bool) -> Outcome:
    right, other = ("weighted", "plain") if normalized else ("plain", "weighted")
    rows, found, swapped, falls = [], [], [], []
    curves: dict[str, np.ndarray] = {"beta": np.array(BETAS)}
    for name, B in matrices(setting).items():
        for beta in BETAS:
            balance = _balance(B, beta, normalized, setting.seeds(1)[0])
            found.append(_residual(balance, right))
            swapped.append(_residual(balance, other))
            falls.append(float(-np.diff(balance["energy"]).min()))
            rows.append({"B": name, "beta": beta, "energy gained": float(np.ptp(balance["energy"]))})
            rows[-1] |= {"residual": found[-1]}
            if name == "random 1":
                grown = np.concatenate([[0.0], np.cumsum(balance["weight"] * balance[right])])
                curves |= {
                    f"t {beta:g}": balance["t"],
                    f"energy {beta:g}": balance["energy"],
                    f"grown {beta:g}": grown,
                }
    free = [
        _residual(_balance(B, beta, normalized, setting.seeds(1)[0]), right)
        for B in matrices(setting, symmetric=False).values()
        for beta in BETAS
    ]
    return Outcome(
        max(found),
        curves=curves,
        table=rows,
        rivals={
            "dissipation of the other flow": min(swapped),
            "matrices that are not symmetric": min(free),
        },
        inconclusive="" if max(falls) <= 0 else f"the energy fell by {max(falls):.1e} between two times",
    )


def unnormalized_experiment(setting: Setting) -> Outcome:
    """Energy gained along the unnormalised flow against the integral of the mean squared speed."""
    return _experiment(setting, normalized=False)


def softmax_experiment(setting: Setting) -> Outcome:
    """Energy gained along the softmax flow against the integral of the mean of Z times the squared speed."""
    return _experiment(setting, normalized=True)


def energy_figure(outcome: Outcome) -> Lines:
    """The energy for a random matrix, and what the squared speed adds up to."""
    series = []
    for place, beta in enumerate(outcome.curves["beta"].tolist()):
        energy, grown = outcome.curves[f"energy {beta:g}"], outcome.curves[f"grown {beta:g}"]
        t = outcome.curves[f"t {beta:g}"]
        share = t / t[-1]
        series.append(Series(share, energy - energy[0], f"β = {beta:g}", colour=place))
        # Partial sums of a Gauss rule belong to the ends of its cells.
        edges = np.concatenate([[0.0], (share[1:-2] + share[2:-1]) / 2, [1.0]])
        label = "" if place else "integral of the squared speed"
        series.append(Series(edges[::3], grown[::3], label, "points", colour=place))
    title = "The energy grows by the squared speed, V = B random and symmetric"
    return Lines(title, "time t / length of the run", "energy gained", series)


REASON = (
    "the integrator is asked for 1e-10 per step, and 40 Gauss nodes over three units of time leave less; what is "
    "gained is at least 1e-3 of the energy"
)
RIVALS = {
    "dissipation of the other flow": "The energy grows by the squared speed, weighted as for the other flow.",
    "matrices that are not symmetric": "The identity holds for any learned matrix V = B.",
}

CLAIMS = (
    Claim(
        "energy-unnormalised",
        "The unnormalised flow is the gradient flow of the energy for V = B symmetric, of eigenvalues of both "
        "signs: "
        f"it never falls, and dE/dt is the mean squared speed (d = {DIMENSION}, beta = {listed(BETAS)}).",
        unnormalized_experiment,
        expected=0.0,
        tolerance=1e-5,
        reason=REASON,
        source=PAPER,
        figure=energy_figure,
        theme=THEME,
        unit="relative residual of the energy gained",
        effort=3,
        rivals=RIVALS,
    ),
    Claim(
        "energy-softmax",
        "Softmax attention raises the same energy for V = B symmetric: dE/dt is the mean of Z times the "
        "squared speed, Z "
        f"the partition function of a token (d = {DIMENSION}, beta = {listed(BETAS)}).",
        softmax_experiment,
        expected=0.0,
        tolerance=1e-5,
        reason=REASON,
        source=ESTIMATE,
        figure=energy_figure,
        theme=THEME,
        unit="relative residual of the energy gained",
        effort=3,
        rivals=RIVALS,
    ),
)
