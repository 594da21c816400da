"""Random runs: the gradient against differences of runs whose steps stay as they were."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import torch

import metastable as ms
from metastable.measure import Measure
from metastable.solve import gradient
from metastable.solve.adjoint import record
from metastable.solve.methods import METHODS
from metastable.solve.problem import Problem
from metastable.solve.runge_kutta import runge_kutta
from metastable.solve.trace import Interval


def _flow(V: torch.Tensor, B: torch.Tensor, beta: float, kind: str) -> ms.Flow:
    w = ms.AttentionWeights(V=V, B=B)
    flow = ms.UnnormalizedAttention(w, beta, log_scale=1.0) if "unnormalised" in kind else ms.SelfAttention(w, beta)
    if "causal" in kind:
        return ms.Causal(flow, alibi=1.0, include_self="itself" in kind)
    if "heads" in kind:
        return ms.MultiHead([flow, ms.SelfAttention(ms.AttentionWeights(V=B, B=V), 1.0)], combine="mean")
    return flow


def directional(seed: int) -> str | None:
    """dL/ds along a random direction in V, B, beta and the tokens, through four fixed steps of a random method."""
    chance, draw = random.Random(seed), torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64, generator=draw)

    n, d = chance.choice((1, 2, 7, 40, 40, 520)), chance.choice((2, 3, 5, 8, 9, 17))
    kind = chance.choice(("softmax", "unnormalised", "causal", "causal itself", "causal unnormalised", "heads"))
    method, beta = chance.choice(("dop853", "adaptive", "rk4", "euler")), chance.choice((0.5, 2.0, 8.0))
    beta = min(beta, 2.0) if "unnormalised" in kind else beta
    V, B, points = normal(d, d) / math.sqrt(d), normal(d, d) / math.sqrt(d), ms.sphere.uniform(n, d, seed=seed)
    mass, c = Measure(points, torch.rand(n, generator=draw) + 0.1).mass, normal(n, d)
    to_V, to_B, turn = normal(d, d), normal(d, d), normal(n, d)
    table, h = runge_kutta(METHODS[method]()), 0.05
    assert table is not None

    def value(s: float) -> float:
        moved = points + s * turn
        x = moved / moved.norm(dim=1, keepdim=True)
        flow = _flow(V + s * to_V, B + s * to_B, beta + s, kind)
        problem = Problem(flow, mass, 1e-8, 1e-10, None, math.inf)
        for k in range(4):
            x = record(problem, table, x, Interval(k * h, (k + 1) * h, -math.inf, math.inf)).points
        return float((c * x).sum())

    step = {"step": h} if method in ("rk4", "euler") else {"max_step": h, "rtol": 1.0, "atol": 1.0}
    rho = Measure(points, mass)
    found = gradient(_flow(V, B, beta, kind), rho, 4 * h, lambda x: (c * x).sum(), method=method, **step)
    if found.steps != 4:
        return None  # the method chose other steps than those of the differences
    head = (found.V[0], found.B[0], float(found.beta[0])) if "heads" in kind else (found.V, found.B, found.beta)
    if "heads" in kind:  # the second head has V and B the other way round
        head = (head[0] + found.B[1], head[1] + found.V[1], head[2])
    slope = float((head[0] * to_V).sum() + (head[1] * to_B).sum() + head[2] + (found.points * turn).sum())
    e = 1e-3
    difference = sum(a * (value(k * e) - value(-k * e)) for k, a in ((1, 3 / 4), (2, -3 / 20), (3, 1 / 60))) / e
    scale = max(abs(difference), float(c.norm()) * 1e-2)
    if abs(slope - difference) > 1e-7 * scale:
        return f"{kind}, n={n}, d={d}, beta={beta}, {method}: slope {slope:.12g}, differences {difference:.12g}"
    return None


CASES: dict[str, Callable[[int], str | None]] = {"gradient": directional}
