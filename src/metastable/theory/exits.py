"""When the concentrated phase ends, by which mechanism, and how well that time is known.

mean-field drift        clusters on E look for keys away from themselves (Delta > 0); the tail near the separatrix
                        that holds them thins out until they outweigh it, at beta Delta/(k g_out)              (N4)
finite number of tokens n tokens leave that tail empty earlier, at (log n - 1)/(k g_out)                        (N4)
clusters follow V       Delta = 0: narrow clusters attend themselves and V prefers another space; their offset
                        grows from the noise of n tokens along the integrated closure                      (C1, C3)
never                   Delta = 0 and E on top of V
Where clusters attend their antipodes -V takes the place of V (C4).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np
import torch

from metastable.measure import Measure
from metastable.theory.closure import Cluster
from metastable.theory.modes import clustering_time
from metastable.theory.spectrum import Spectrum
from metastable.weights import AttentionWeights

LOG_OFFSET = 1.1
"""Standard deviation of ln|offset| of a cluster of iid tokens: that of the logarithm of a normal variable."""
ORDER_OF_MAGNITUDE = 3.0
"""The factor to which the exit is known where Delta > 0: of the random heads of `tests/theory/test_exits.py` nine
in ten leave within it. Where clusters gather anywhere before, the exit may come as early as that."""
COLD = 1e4
"""From here on the fastest growth of noise has reached its limit 2/e (G1) to three digits."""
TAIL = 1.0
"""The tail near the separatrix runs out of tokens at (log n - TAIL)/(k g_out), where W2 is smallest (N4)."""


@dataclass(frozen=True)
class Exit:
    """End of the concentrated phase: the earlier of the mean field's and the tokens' own time, infinite for never.

    NaN where no formula is known. `case` names the situation, `ends` says in words what ends the phase, and
    the time is known to the factor `uncertainty` (NaN where there is none).
    """

    mean_field: float
    tokens: float
    case: str
    ends: str
    uncertainty: float = math.nan

    @property
    def time(self) -> float:
        """The earlier of the two candidates."""
        return math.nan if math.isnan(self.mean_field) else min(self.mean_field, self.tokens)


def exit_of(s: Spectrum, beta: float, rho: Measure, crossing: float) -> Exit:
    """The exit of clusters on E; `crossing` is the time at which they become narrow."""
    antipodal = s.attends == "antipode"
    place = "at the bottom of V, attends its antipode" if antipodal else "on top of V"
    who = "pairs of clusters attend each other" if antipodal else "narrow clusters attend themselves"
    if antipodal and one_side_is_empty(s, rho):
        return _open("E attends its antipode and one side is empty", math.nan)
    if not s.delta_vanishes:
        return _held(s, beta, rho, crossing)
    if s.clusters_stay:
        return Exit(math.inf, math.inf, f"Delta = 0, E {place}", f"never: {who}, and V keeps them on E")
    if s.attends == "neither" or not s.clusters_narrow:
        why = "<e, Be> has no sign on E" if s.attends == "neither" else "clusters keep a width"
        return _open(f"Delta = 0, {why}", math.inf)
    leaving, rate = _closure_exit(s, beta, rho.n, crossing)
    if math.isnan(leaving):
        return _open("Delta = 0, E not " + place + ", dim E > 1 or V turns clusters out of E", math.inf)
    ends = f"clusters follow V: {who}, and their offset grows from the noise of {rho.n} tokens until they leave E"
    known = 1 + 3 * LOG_OFFSET / (rate * leaving) if 0 < leaving < math.inf else math.nan
    return Exit(leaving, math.inf, f"Delta = 0, E not {place}", ends, known)


def _held(s: Spectrum, beta: float, rho: Measure, crossing: float) -> Exit:
    """Delta > 0: the tail near the separatrix holds the clusters until they outweigh it or it is empty."""
    k, ready = s.dimension, crossing if math.isfinite(crossing) else 0.0
    drift = max(beta * s.delta / (k * s.g_out), crossing)
    tail = max((math.log(rho.n) - TAIL) / (k * s.g_out), ready)
    held = "clusters on E are held by the tail of tokens that still leave the separatrix"
    after = f"; then they follow V, the top of which is {s.angle:.2g} rad from E"
    if drift <= tail:
        ends = f"mean-field drift: {held}, until they outweigh it{after}"
    else:
        ends = f"finite number of tokens: {held}, until none of {rho.n} tokens is left in it{after}"
    known = max(ORDER_OF_MAGNITUDE, min(drift, tail) / max(_gathering(s, beta, rho), 1e-300))
    return Exit(drift, tail, "Delta > 0", ends, known)


def _gathering(s: Spectrum, beta: float, rho: Measure) -> float:
    """When the noise of n tokens has grown to clusters anywhere on the sphere, which then follow V each by itself
    (G2, G3): the fastest rate for V and B as if they were multiples of the identity of their own sizes."""
    V = s.weights.V.detach().cpu().numpy()
    pull = float(np.linalg.eigvalsh((V + V.T) / 2)[-1])
    return math.inf if pull <= 0 else clustering_time(rho.n, min(beta * s.weights.B_norm, COLD), rho.d, pull)


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


def _closure_exit(s: Spectrum, beta: float, n: int, crossing: float) -> tuple[float, float]:
    """(time, rate) of the earliest exit of `clusters` for n iid tokens and of its offset's growth; NaN where
    dim E > 1 or V turns clusters out of E."""
    starts = clusters(s, beta)
    turning = s.attends == "antipode" and 2 * (s.weights.d - 1) > len(starts)
    if not starts or turning or s.dimension != 1:
        return math.nan, math.nan
    local = (s.M.value - float(s.M.eigenvalues.real[1])) / starts[0].B_1
    times = []
    for start in starts:
        own = start.local_rate if s.attends == "itself" else local
        # The variance that makes C2 agree with the crossing of the exact orbits, transient included.
        variance = math.exp(min(2 * own * crossing, 700.0)) / (beta * start.B_1) if own > 0 else 1.0
        ready = dataclasses.replace(start, variance=min(variance, 1.0))
        # Sum and difference of the offsets of two clusters are half as noisy in the square as each of them.
        share = 1.0 if s.attends == "itself" else math.sqrt(0.5)
        leaves = ready.exit_time(min(share * ready.sampled_offset(n), 0.49))
        times.append((leaves, max(start.escape_rate, 1e-300)))
    return min(times)


def _open(why: str, tokens: float) -> Exit:
    return Exit(math.nan, tokens, f"out of range: {why}", f"open: {why}; no formula for the exit")
