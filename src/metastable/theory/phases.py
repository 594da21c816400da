"""When each phase begins and ends: concentration, crossing, exit, clustering inside E, and the terminal space."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.flows.orbit import orbit
from metastable.measure import Measure
from metastable.theory.closure import Cluster
from metastable.theory.modes import clustering_time
from metastable.theory.spectrum import Spectrum
from metastable.weights import AttentionWeights

TOKENS = 2000
"""Most tokens whose exact orbits are used to locate a time."""
TAIL_EXIT, TAIL_SAFE_RANDOM, TAIL_SAFE_NODES = 1.0, 3.5, 2.5
"""The tail near the separatrix runs out of tokens at (log n - q)/(k g_out): q for the minimum of W2, and the q
below which no violation of the safe curve was seen for iid tokens and for deterministic nodes (N4, N7)."""


@dataclass(frozen=True)
class Times:
    """Times of the phases; infinite when the event does not happen, NaN when it is not defined for these weights.

    concentration:  the zero-temperature distance to the limit falls to sqrt(log(beta+1)/beta).
    crossing:       median width of the clusters = (beta |B^T e|)^{-1/2}: from M's regime to V's (t_x, C2).
    exit:           end of the concentrated phase, the earlier of mean-field time and the tokens' own limit (N4).
    exit_mean_field, exit_tokens: the two candidates; case says which of the three situations of Delta applies.
    clustering:     tokens on E (dim E >= 2) have gathered in clusters (G2).
    safe:           the safe curve is trusted up to here (N7).
    """

    concentration: float
    crossing: float
    exit: float
    exit_mean_field: float
    exit_tokens: float
    clustering: float
    safe: float
    case: str


@dataclass(frozen=True, eq=False)
class Terminal:
    """The terminal phase: narrow clusters obey c' = P_c V c and go to the dominant space of V (C4, N5)."""

    space: Float[Tensor, "d k"]
    kind: str
    rate: float
    frequency: float
    eigenvalue: float
    sentence: str


def phase_times(s: Spectrum, beta: float, rho: Measure, deterministic: bool = False, seed: int = 0) -> Times:
    """All times of `Times` for one head, from the exact zero-temperature orbits of (at most TOKENS of) the tokens.

    The mean-field exit: Delta > 0, beta Delta/g_out; Delta = 0 and E not on top of V, the integrated closure with
    the offset of n iid tokens; Delta = 0 and E on top of V, never. The tokens' own limit, (log n - 1)/(k g_out),
    concerns only the first case, where a tail of tokens must hold the cluster.
    """
    k, n = s.dimension, rho.n
    if s.kind not in ("point pair", "subsphere"):
        nothing = math.nan if s.kind in ("rotation", "jordan") else math.inf
        inside = _inside(s, beta, n) if s.kind == "identity" else math.nan
        return Times(
            0.0 if s.kind == "identity" else math.nan, nothing, nothing, nothing, nothing, inside, 0.0, s.kind
        )
    concentration, crossing = _concentration_and_crossing(s, beta, rho, seed)
    tail = max(0.0, math.log(n) - TAIL_EXIT) / (k * s.g_out)
    flat = s.delta <= 1e-9 * s.weights.B_norm
    if not flat:
        case = "Delta > 0"
        mean_field = max(beta * s.delta / s.g_out, crossing)
        tokens = tail
    elif s.angle < 1e-6:
        case, mean_field, tokens = "Delta = 0, E on top of V", math.inf, math.inf
    else:
        case, tokens = "Delta = 0, E not on top of V", math.inf
        mean_field = _closure_exit(s, beta, n, crossing)
    q = TAIL_SAFE_NODES if deterministic else TAIL_SAFE_RANDOM
    hold = max(0.6 * beta * s.delta / s.g_out, math.log(max(beta, 1.0)) / (2 * s.g_in))
    safe = min(max(0.0, math.log(n) - q) / (k * s.g_out), hold)
    inside = _inside(s, beta, n) if k > 1 else math.inf
    return Times(concentration, crossing, min(mean_field, tokens), mean_field, tokens, inside, safe, case)


def terminal(s: Spectrum) -> Terminal:
    """Where narrow clusters go in the end, and how fast."""
    v = s.V
    value = f"{v.value:.4g}"
    sentence = {
        "rotation": f"clusters turn for ever in the plane of V's leading pair, angular speed {v.frequency:.4g}",
        "jordan": f"clusters approach the defective leading direction of V (eigenvalue {value}) algebraically",
        "identity": "V is a multiple of the identity: clusters stay where they are",
    }.get(v.kind, f"clusters align with the leading eigenspace of V (eigenvalue {value}) at rate {v.gap:.4g}")
    rate = v.gap if math.isfinite(v.gap) else 0.0
    return Terminal(v.space, v.kind, rate, v.frequency, v.value, sentence)


def cluster(s: Spectrum, beta: float, variance: float = 1.0) -> Cluster | None:
    """The closure of a cluster at e in E (Delta = 0, k = 1) against V's leading direction; None if e attends -e."""
    w: AttentionWeights = s.weights
    e = s.M.space[:, 0]
    v = s.V.space[:, 0]
    B_1 = float(e @ w.B.T @ e)
    if B_1 <= 0:
        return None
    return Cluster(
        V_1=float(e @ w.V @ e), V_k=s.V.value, B_1=B_1, B_k=float(v @ w.B.T @ v), beta=beta, variance=variance
    )


def _closure_exit(s: Spectrum, beta: float, n: int, crossing: float) -> float:
    start = cluster(s, beta)
    if start is None or s.dimension != 1:
        return math.nan
    # The variance that makes C2 agree with the crossing of the exact orbits, transient included.
    variance = math.exp(2 * start.local_rate * crossing) / (beta * start.B_1) if start.local_rate > 0 else 1.0
    ready = cluster(s, beta, min(variance, 1.0))
    assert ready is not None
    offset = min(ready.sampled_offset(n), 0.49)
    return ready.exit_time(offset)


def _inside(s: Spectrum, beta: float, n: int) -> float:
    """Clustering inside E: softmax attention on a sphere of dimension k with V = l1/b and scores beta b."""
    b = float(np.linalg.norm(s.weights.B.numpy().T @ s.M.space.numpy(), 2))
    if s.dimension < 2 or s.M.value <= 0 or b == 0:
        return math.inf
    return clustering_time(n, beta * b, s.dimension, s.M.value / b)


def _concentration_and_crossing(s: Spectrum, beta: float, rho: Measure, seed: int) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(seed)
    x, mass = rho.points, rho.mass
    if rho.n > TOKENS:
        rows = torch.multinomial(mass, TOKENS, replacement=False, generator=generator)
        x, mass = x[rows], mass[rows] / mass[rows].sum()
    rate = min(s.g_in, s.dimension * s.g_out / 2)
    horizon = (0.5 * math.log1p(max(beta, 1.0)) + 3) / rate
    times = np.concatenate([[0.0], np.linspace(0, 2 * horizon, 240)[1:]])
    path = orbit(s.weights.M, s.weights.B, x, times)
    onto = torch.linalg.vector_norm(path @ s.projector.to(path).T, dim=2)
    off = torch.linalg.vector_norm(path - path @ s.projector.to(path).T, dim=2)
    distance = torch.sqrt((mass * 2 * off**2 / (1 + onto.clamp(max=1.0))).sum(1)).numpy()
    next_space = s.M.next_space.to(path)
    width = (path @ next_space).square().sum(2) / next_space.shape[1] / onto.square()
    order = torch.argsort(width, dim=1)
    half = (torch.cumsum(mass[order], dim=1) < 0.5).sum(1, keepdim=True)
    median = torch.gather(torch.gather(width, 1, order), 1, half.clamp(max=len(mass) - 1))[:, 0].numpy()
    window = s.gap / s.g_in * beta
    return (
        _first_below(times, distance, math.sqrt(math.log1p(beta) / max(beta, 1e-300))),
        _first_below(times, median, 1 / window),
    )


def _first_below(times: np.ndarray, values: np.ndarray, level: float) -> float:
    """First time at which a positive curve falls below the level, log-linear in between; inf if it does not."""
    below = np.nonzero(values <= level)[0]
    if not len(below):
        return math.inf
    i = int(below[0])
    if i == 0:
        return 0.0
    a, b = math.log(values[i - 1]), math.log(max(values[i], 1e-300))
    return float(times[i - 1] + (times[i] - times[i - 1]) * (a - math.log(level)) / (a - b))
