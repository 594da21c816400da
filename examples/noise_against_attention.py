"""Attention that drives tokens apart against a noise that is common to them all, which drives them together.

With V = -I attention repels. A common noise of amplitude s, the limit of random layers with an activation, changes
log(1 - <x, y>) of two close tokens at the rate s^2 Lambda + 2, Lambda = (d-3) kappa'(1) - (d-1) kappa(1) < 0. Hence
tokens gather iff s^2 |Lambda| > 2, and then at that rate. A noise of the same strength that every token has for
itself never gathers them.

    python examples/noise_against_attention.py --activation relu --out noise.png     # seconds
"""

from __future__ import annotations

import argparse
import math

import numpy as np
import torch

import metastable as ms
from metastable.drawing import Lines, Series, draw
from metastable.measure import Ensemble
from metastable.theory import TwoPointMotion

DIMENSION, TOKENS, BETA = 4, 8, 2.0
BALANCES = (0.5, 1.5, 3.0)
"""s^2 |Lambda|/2: attention wins below one, the noise above."""
TIME, STEP, FRAMES = 8.0, 0.01, 81


def apart(points: torch.Tensor) -> np.ndarray:
    """Geometric mean over systems of the mean of 1 - <x, y> over pairs of tokens, for each time."""
    n = points.shape[2]
    spread = (points - points.mean(dim=2, keepdim=True)).square().sum(-1).mean(dim=2)
    return np.exp(torch.log(spread * n / (n - 1)).mean(dim=1).numpy())


def run(activation: str, scale: float, systems: int, seed: int, independent: bool = False) -> np.ndarray:
    """How far tokens are apart at FRAMES times."""
    one = np.eye(DIMENSION)
    attention = ms.SelfAttention(ms.AttentionWeights(V=-one, B=one), BETA)
    flow = ms.CommonNoise(attention, activation=activation, scale=scale, independent=independent)
    start = ms.sphere.uniform(systems * TOKENS, DIMENSION, seed=seed).view(systems, TOKENS, DIMENSION)
    path = ms.solve(flow, Ensemble(start), TIME, times=FRAMES, step=STEP, seed=seed, method="euler-maruyama")
    return apart(path.points)


def picture(activation: str, systems: int, seed: int) -> Lines:
    """Distances against time, with the rates that theory gives close to consensus."""
    times = np.linspace(0.0, TIME, FRAMES)
    alone = TwoPointMotion(activation, DIMENSION).lyapunov
    if not alone < 0:
        raise SystemExit(f"{activation} noise does not gather tokens in dimension {DIMENSION}: Lambda = {alone:g}")
    series = []
    for colour, balance in enumerate(BALANCES):
        scale = math.sqrt(2 * balance / -alone)
        found = run(activation, scale, systems, seed)
        series.append(Series(times, found, f"s²|Λ| = {2 * balance:g}", colour=colour))
        rate = TwoPointMotion(activation, DIMENSION, scale=scale, attention=-1.0, beta=BETA).lyapunov
        measured = np.polyfit(times[FRAMES // 2 :], np.log(found[FRAMES // 2 :]), 1)[0]
        print(
            f"s^2 |Lambda| = {2 * balance:g}: rate {measured:+.2f} in the second half, near consensus {rate:+.2f}"
        )
        if rate < 0:
            late = slice(FRAMES // 2, None)
            level = np.log(found[late]) - rate * times[late]
            series.append(
                Series(times[late], np.exp(level.mean() + rate * times[late]), "", "dashed", colour=colour)
            )
    strongest = run(activation, math.sqrt(2 * BALANCES[-1] / -alone), systems, seed, independent=True)
    series.append(Series(times, strongest, "the strongest, independent", "dotted", colour=len(BALANCES)))
    title = f"Repelling attention against {activation} noise, d = {DIMENSION}; dashed: theory"
    ticks = {10.0**k: f"1e{k}" for k in range(-16, 1, 4)}
    return Lines(title, "t", "1 − ⟨x, y⟩, geometric mean", series, log_y=True, y_ticks=ticks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--activation", default="relu", help="of the random layers whose limit is the noise")
    parser.add_argument("--systems", type=int, default=200, help="independent runs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="noise.png", help="the figure")
    arguments = parser.parse_args()
    draw(picture(arguments.activation, arguments.systems, arguments.seed), arguments.out)
    print(arguments.out)


if __name__ == "__main__":
    main()
