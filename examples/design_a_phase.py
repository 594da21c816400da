"""Find the eigenvalues of V with which a metastable phase lasts as long as wanted, by derivatives of a run.

Tokens gather at the dominant axis e_1 of M = V B^T and stay there while V, whose own dominant axis is e_2, pulls
them away. How long they stay, until m = E <x, e_1>^2 has fallen to one half, is a number T(V) that only a run
knows. It is the root of m(T; V) = 1/2, hence dT/dV = -(dm/dV)/(dm/dt), and dm/dV is one call of `gradient` at the
time T of the last run. The shortest change of the eigenvalues that moves log T to where it is wanted, again and
again, is Newton's method.

    python examples/design_a_phase.py --wanted 20 --out phase.png     # seconds
"""

from __future__ import annotations

import argparse
import math

import torch

import metastable as ms
from metastable.drawing import Lines, Series, draw
from metastable.errors import NotDefined
from metastable.solve import Event, gradient

BETA = 40.0
B = [[1.0, 0.0], [0.0, 0.5]]
V = [[1.0, 0.0], [0.0, 1.4]]
"""Where the search begins: M = V B^T = diag(1, 0.7) gathers at e_1, V = diag(1, 1.4) at e_2."""
TILT, KAPPA = 0.1, 8.0
"""The first tokens: their mean direction, as an angle from e_1, and how close to it they are."""
LONGEST = 400.0
"""A phase that has not ended here counts as endless."""
LARGEST_MOVE = 0.5
"""Largest change of log T that one step asks for: T(V) is straight over no more than that."""


def held(points: torch.Tensor) -> torch.Tensor:
    """m = E <x, e_1>^2: one while all tokens are at the first axis, zero when all are at the second."""
    return points[:, 0].square().mean()


def flow(V: torch.Tensor) -> ms.SelfAttention:
    """The flow with this V."""
    return ms.SelfAttention(ms.AttentionWeights(V=V, B=B), BETA)


def duration(V: torch.Tensor, tokens: ms.Measure) -> float:
    """T: when m falls through one half after it has been above."""
    end = Event(lambda points, mass: held(points), level=0.5, direction=-1, stop=True, name="exit")
    path = ms.solve(flow(V), tokens, LONGEST, events=[end])
    if not path.events:
        raise NotDefined(f"the phase has not ended at t = {LONGEST:g}")
    return path.events[0].time


def slope(V: torch.Tensor, tokens: ms.Measure, T: float) -> torch.Tensor:
    """dT/dV = -(dm/dV)/(dm/dt) at m = 1/2, for the eigenvalues: V stays diagonal."""
    found = gradient(flow(V), tokens, T, held)
    x = found.end.points
    falling = 2 * (x[:, 0] * flow(V).velocity(T, x, found.end.mass)[:, 0]).mean()
    return -torch.diag(torch.diag(found.V)) / falling


def design(V: torch.Tensor, tokens: ms.Measure, wanted: float, tries: int = 30) -> list[tuple[torch.Tensor, float]]:
    """(V, T) from the start to a V whose phase lasts as wanted, to a part in a million."""
    made = [(V, duration(V, tokens))]
    while abs(made[-1][1] / wanted - 1) > 1e-6 and len(made) < tries:
        V, T = made[-1]
        of_log = slope(V, tokens, T) / T
        move = max(-LARGEST_MOVE, min(LARGEST_MOVE, math.log(wanted / T)))
        V = V + move * of_log / of_log.square().sum()
        made.append((V, duration(V, tokens)))
        print(f"try {len(made) - 1}: T = {made[-1][1]:.6f}, eigenvalues {V[0, 0]:.6f}, {V[1, 1]:.6f}")
    return made


def picture(made: list[tuple[torch.Tensor, float]], tokens: ms.Measure, wanted: float) -> Lines:
    """m(t) before and after, over the time that both need."""
    t = 1.4 * max(wanted, made[0][1])
    series = []
    for (V, T), name, style in ((made[0], "at the start", "dashed"), (made[-1], "after the search", "line")):
        path = ms.solve(flow(V), tokens, t, times=400)
        m = [float(held(points)) for points in path.points]
        series.append(Series(path.times.tolist(), m, f"{name}, T = {T:.4g}", style))
    return Lines(
        "A metastable phase of the length that was asked for",
        "t",
        "E ⟨x, e₁⟩²",
        series,
        moments={wanted: f"wanted {wanted:g}"},
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wanted", type=float, default=20.0, help="how long the phase is to last")
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="phase.png", help="the figure")
    arguments = parser.parse_args()
    # On one side of e_1, so that there is one cluster, which leaves at one time.
    mean = [math.cos(TILT), math.sin(TILT)]
    tokens = ms.Measure(ms.sphere.von_mises_fisher(arguments.tokens, mean, KAPPA, seed=arguments.seed))
    start = torch.tensor(V, dtype=torch.float64)
    print(f"start: T = {duration(start, tokens):.6f}")
    made = design(start, tokens, arguments.wanted)
    draw(picture(made, tokens, arguments.wanted), arguments.out)
    print(f"wanted {arguments.wanted:g}, reached {made[-1][1]:.6f} in {len(made) - 1} tries; {arguments.out}")


if __name__ == "__main__":
    main()
