"""When each phase begins and ends: concentration, crossing, exit, clustering inside E, and the terminal space."""

from __future__ import annotations

import dataclasses
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
from metastable.theory.zero_temperature import nearest_point_distance
from metastable.weights import AttentionWeights

MOST_TOKENS = 2000
"""Most tokens whose exact orbits are used to locate a time; of more, a random choice by mass."""
FRAMES = 240
"""Times at which their orbits are looked at, between which curves are interpolated log-linearly."""
TAIL_EXIT, TAIL_SAFE_RANDOM, TAIL_SAFE_NODES = 1.0, 3.5, 2.5
"""The tail near the separatrix runs out of tokens at (log n - q)/(k g_out): q for the minimum of W2, and the q
below which no violation of the safe curve was seen for iid tokens and for deterministic nodes (N4, N7)."""
SAFE_SHARE = 0.6
"""Share of the mean-field exit time beta Delta/g_out up to which the safe curve is trusted (N7)."""


@dataclass(frozen=True)
class Times:
    """Times of the phases; infinite when the event does not happen, NaN when it is not defined for these weights.

    concentration:  the zero-temperature distance to the limit falls to sqrt(log(beta+1)/beta).
    crossing:       median width of the clusters = (beta |B^T e|)^{-1/2}: from M's regime to V's (t_x, C2).
    exit:           end of the concentrated phase, the earlier of mean-field time and the tokens' own limit (N4).
    exit_mean_field, exit_tokens: the two candidates; case says which of the three situations of Delta applies.
    clustering:     tokens on E (dim E >= 2) have gathered in clusters (G2).
    safe:           the safe curve is trusted up to here (N7); 0 in a forecast whose defect is above its limit.
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
    """The terminal phase (C4, N5): narrow clusters obey c' = P_c V c and go to the dominant space of V.

    Clusters that attend their antipodes obey c_+' = P V c_-, c_-' = P V c_+ instead: they go to the smallest
    eigenvalue of V as an antipodal pair, or meet on the largest if that is larger in size. kind is the space's
    ("point pair", "subsphere", "identity", "rotation", "jordan"), or "open" where no formula is known: then `space`
    is empty, the numbers are NaN and the sentence says why.
    """

    space: Float[Tensor, "d k"]
    kind: str
    rate: float
    frequency: float
    eigenvalue: float
    sentence: str


def phase_times(s: Spectrum, beta: float, rho: Measure, deterministic: bool = False, seed: int = 0) -> Times:
    """All times of `Times` for one head, from the exact zero-temperature orbits of (at most MOST_TOKENS of) the
    tokens.

    The mean-field exit: Delta > 0, beta Delta/g_out; Delta = 0 and E not on top of V, the integrated closure with
    the offset of n iid tokens; Delta = 0 and E on top of V, never. Where clusters attend their antipodes -V takes
    the place of V. The tokens' own limit, (log n - 1)/(k g_out), concerns only the first case, where a tail of
    tokens must hold the cluster. NaN where no formula is known; `case` then says why.
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
    antipodal = s.attends == "antipode"
    place = "at the bottom of V, attends its antipode" if antipodal else "on top of V"
    if antipodal and one_side_is_empty(s, rho):
        case, mean_field, tokens = "out of range: E attends its antipode and one side is empty", math.nan, math.nan
    elif not s.delta_vanishes:
        case = "Delta > 0"
        mean_field = max(beta * s.delta / s.g_out, crossing)
        tokens = tail
    elif s.clusters_stay:
        case, mean_field, tokens = f"Delta = 0, E {place}", math.inf, math.inf
    elif s.attends == "neither" or not s.clusters_narrow:
        why = "<e, Be> has no sign on E" if s.attends == "neither" else "clusters keep a width"
        case, mean_field, tokens = f"out of range: Delta = 0, {why}", math.nan, math.inf
    else:
        case, tokens = f"Delta = 0, E not {place}", math.inf
        mean_field = _closure_exit(s, beta, n, crossing)
    exit_time = math.nan if math.isnan(mean_field) else min(mean_field, tokens)
    q = TAIL_SAFE_NODES if deterministic else TAIL_SAFE_RANDOM
    hold = max(SAFE_SHARE * beta * s.delta / s.g_out, math.log(max(beta, 1.0)) / (2 * s.g_in))
    safe = min(max(0.0, math.log(n) - q) / (k * s.g_out), hold)
    inside = _inside(s, beta, n) if k > 1 else math.inf
    return Times(concentration, crossing, exit_time, mean_field, tokens, inside, safe, case)


def terminal(s: Spectrum, rho: Measure | None = None) -> Terminal:
    """Where narrow clusters go in the end, and how fast; rho, if given, says whether both antipodes hold mass."""
    if s.weights.V_norm == 0:
        return Terminal(s.V.space, s.V.kind, 0.0, 0.0, 0.0, "V is zero: nothing moves")
    antipodal = s.attends == "antipode"
    if (
        s.kind in ("point pair", "subsphere")
        and not s.clusters_stay
        and s.delta_vanishes
        and s.attends != "neither"
        and not s.clusters_narrow
    ):
        return _open(s, "V pushes clusters on E apart and they keep a width")
    if s.attends == "neither":
        return _open(
            s, "<e, Be> has no sign on E, so that some clusters attend themselves and some their antipodes"
        )
    if antipodal and rho is not None and one_side_is_empty(s, rho):
        return _open(s, "clusters on E attend their antipodes, and one side is empty")
    if antipodal and s.pairs_stay_antipodal is None:
        return _open(s, "V is as large on its bottom as on its top, and antipodal clusters may stay so or meet")
    pairs = antipodal and bool(s.pairs_stay_antipodal)
    v = s.bottom_of_V if pairs else s.V
    wanted = "antipode" if pairs else "itself"
    # Clusters that have met are one cluster, and one cluster attends itself whatever the sign of <c, Bc>.
    if not (s.clusters_stay or (antipodal and not pairs)) and s.attention_on(v.space) != wanted:
        end = "bottom" if pairs else "top"
        return _open(s, f"clusters leave for the {end} of V, where <c, Bc> has another sign than on E")
    number = -v.value if pairs else v.value
    value = f"{number:.4g}"
    who = "antipodal pairs of clusters" if pairs else "antipodal clusters meet and" if antipodal else "clusters"
    which = "smallest" if pairs else "leading"
    rate = v.gap if math.isfinite(v.gap) else 0.0
    if pairs and v.kind in ("point pair", "subsphere"):
        # The pair can also lose its symmetry, towards the top of V.
        rate = min(rate, v.value - s.V.value)
    sentence = {
        "rotation": f"{who} turn for ever in the plane of V's {which} pair, angular speed {v.frequency:.4g}",
        "jordan": f"{who} approach the defective {which} direction of V (eigenvalue {value}) algebraically",
        "identity": f"V is a multiple of the identity: {who} stay where they are",
    }.get(v.kind, f"{who} align with the {which} eigenspace of V (eigenvalue {value}) at rate {rate:.4g}")
    return Terminal(v.space, v.kind, rate, v.frequency, number, sentence)


def one_side_is_empty(s: Spectrum, rho: Measure) -> bool:
    """Whether dim E = 1 and all mass lies on one side of the separatrix: one of the two clusters is empty."""
    if s.dimension != 1:
        return False
    height = rho.points.to(torch.float64) @ (s.projector.T @ s.M.space[:, 0])
    return not (bool((rho.mass[height > 0] > 0).any()) and bool((rho.mass[height < 0] > 0).any()))


def clusters(s: Spectrum, beta: float, variance: float = 1.0) -> list[Cluster]:
    """The closures of a cluster at e in E (Delta = 0, k = 1), one for each way in which it may leave.

    A cluster that attends itself leaves for V's leading direction. Two clusters that attend each other obey the
    closure of -V and -B; they may leave along any eigenvector of V, antipodal (parity 1) or not (parity -1).
    """
    w: AttentionWeights = s.weights
    e = s.M.space[:, 0]
    V_1, B_1 = float(e @ w.V @ e), float(e @ w.B.T @ e)
    if s.attends == "itself":
        v = s.V.space[:, 0]
        return [Cluster(V_1, s.V.value, B_1, float(v @ w.B.T @ v), beta, variance)]
    if s.attends == "neither":
        return []
    values, vectors = np.linalg.eig(w.V.detach().cpu().numpy())
    found = []
    for value, vector in zip(values, vectors.T, strict=True):
        v = torch.from_numpy(vector.real / np.linalg.norm(vector.real))
        if abs(float(v @ e)) < 1 - 1e-9 and abs(value.imag) <= s.V.tolerance * w.V_norm:
            B_k = float(v @ w.B.T @ v)
            found += [Cluster(-V_1, -float(value.real), -B_1, -B_k, beta, variance, parity) for parity in (1, -1)]
    return found


def _open(s: Spectrum, why: str) -> Terminal:
    space = torch.zeros(s.weights.d, 0, dtype=torch.float64)
    return Terminal(space, "open", math.nan, math.nan, math.nan, f"out of range: {why}; no formula for the end")


def _closure_exit(s: Spectrum, beta: float, n: int, crossing: float) -> float:
    """The earliest exit of `clusters` for n iid tokens; NaN where dim E > 1 or V turns clusters out of E."""
    starts = clusters(s, beta)
    turning = s.attends == "antipode" and 2 * (s.weights.d - 1) > len(starts)
    if not starts or turning or s.dimension != 1:
        return math.nan
    local = (s.M.value - float(s.M.eigenvalues.real[1])) / starts[0].B_1
    times = []
    for start in starts:
        own = start.local_rate if s.attends == "itself" else local
        # The variance that makes C2 agree with the crossing of the exact orbits, transient included.
        variance = math.exp(2 * own * crossing) / (beta * start.B_1) if own > 0 else 1.0
        ready = dataclasses.replace(start, variance=min(variance, 1.0))
        # Sum and difference of the offsets of two clusters are half as noisy in the square as each of them.
        share = 1.0 if s.attends == "itself" else math.sqrt(0.5)
        times.append(ready.exit_time(min(share * ready.sampled_offset(n), 0.49)))
    return min(times)


def _inside(s: Spectrum, beta: float, n: int) -> float:
    """Clustering inside E: softmax attention on a sphere of dimension k with V = l1/b and scores beta b."""
    b = float(np.linalg.norm(s.weights.B.numpy().T @ s.M.space.numpy(), 2))
    if s.dimension < 2 or s.M.value <= 0 or b == 0:
        return math.inf
    return clustering_time(n, beta * b, s.dimension, s.M.value / b)


def _concentration_and_crossing(s: Spectrum, beta: float, rho: Measure, seed: int) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(seed)
    x, mass = rho.points, rho.mass
    if rho.n > MOST_TOKENS:
        rows = torch.multinomial(mass, MOST_TOKENS, replacement=False, generator=generator)
        x, mass = x[rows], mass[rows] / mass[rows].sum()
    rate = min(s.g_in, s.dimension * s.g_out / 2)
    horizon = (0.5 * math.log1p(max(beta, 1.0)) + 3) / rate
    times = np.concatenate([[0.0], np.linspace(0, 2 * horizon, FRAMES)[1:]])
    path = orbit(s.weights.M, s.weights.B, x, times)
    distance = nearest_point_distance(s.projector, path, mass).numpy()
    onto = torch.linalg.vector_norm(path @ s.projector.to(path).T, dim=2)
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
