"""How fast scheduled weights change: the width of the narrowest pulse that probing sees.

An integrator sees the weights at the stages of its steps. A pulse that lies between two stages is stepped over, and
no error estimate knows of it; a jump or a ramp is not, because the weights after it differ from those before. So
what counts is the shortest time in which the weights leave and come back.

Probing looks at `PROBES` equidistant times of the run and refines where they show a narrow extremum. It sees every
pulse that is wider than the run divided by `PROBES`; a narrower one is found only if a probe happens to hit it.
Such pulses need `Schedule(..., time_scale=width)`.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float

from metastable.weights import AttentionWeights, Schedule

PROBES = 1024
"""Probes of one run: tens of milliseconds, the price of a few dozen steps."""
ENTRIES = 1 << 22
"""Entries of matrices that all probes together may look at: with large matrices there are fewer probes..."""
FEWEST = 64
"""... but no fewer than this."""
VISIBLE = 1e-6
"""Least height of an extremum relative to the weights that counts: the weights of a schedule carry rounding errors
of 1e-16 and those of interpolation."""
RESOLVED = 4
"""Probes inside the width of an extremum with which it counts as measured."""
NARROWEST = 8
"""Extrema that are refined at a time, the narrowest first: only the least width is asked for."""
ROUNDS = 24
"""Rounds of refinement, each of which halves the distance between the probes around an extremum."""
LEAST = 2.0**-14
"""Least time scale as a part of the run: a narrower pulse, hit by chance, would cost a million steps. State it."""


def time_scale(weights: Schedule, start: float, stop: float) -> float:
    """The least width at half of its height of any extremum of the weights over [start, stop]; infinite if none.

    >>> pulse = lambda t: AttentionWeights(V=[[1 + math.exp(-(((t - 5) / 0.03) ** 2))]], B=[[1.0]])
    >>> round(time_scale(Schedule(pulse), 0.0, 10.0), 2)  # 2 sqrt(log 2) times 0.03
    0.05
    """
    if weights.piecewise_constant or not stop > start:
        return math.inf
    d = weights(start).d
    count = max(FEWEST, min(PROBES, ENTRIES // d**2))
    rows, columns = _directions(d)
    times = np.linspace(start, stop, count + 1)
    seen = np.stack([_seen(weights(float(t)), rows, columns) for t in times])
    least = math.inf
    for _ in range(ROUNDS):
        found = [item for component in seen.T for item in _extrema(times, component)]
        if not found:
            return math.inf
        found.sort()
        least = found[0][0]
        coarse = {k for width, k in found[:NARROWEST] if width < RESOLVED * (times[k + 1] - times[k - 1]) / 2}
        gaps = {side for k in coarse for side in range(max(0, k - RESOLVED), min(k + RESOLVED, len(times) - 1))}
        if not gaps or least <= LEAST * (stop - start):
            break
        between = np.array([(times[k] + times[k + 1]) / 2 for k in sorted(gaps)])
        fresh = np.stack([_seen(weights(float(t)), rows, columns) for t in between])
        order = np.argsort(np.concatenate([times, between]), kind="stable")
        times, seen = np.concatenate([times, between])[order], np.concatenate([seen, fresh])[order]
    return max(least, LEAST * (stop - start))


def _directions(d: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two pairs of unit vectors in general position: a change of any entry shows in u^T V w or u^T B w."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(2, 2, d, dtype=torch.float64, generator=generator)
    unit = drawn / torch.linalg.vector_norm(drawn, dim=2, keepdim=True)
    return unit[0], unit[1]


def _seen(w: AttentionWeights, rows: torch.Tensor, columns: torch.Tensor) -> Float[np.ndarray, "4"]:
    """u^T V w and u^T B w for both pairs."""
    rows, columns = rows.to(w.value), columns.to(w.value)
    parts = ((rows * w.apply_V(columns)).sum(1), (w.queries(rows) * w.keys(columns)).sum(1))
    return torch.cat(parts).double().cpu().numpy()


def _extrema(times: Float[np.ndarray, "m"], values: Float[np.ndarray, "m"]) -> list[tuple[float, int]]:
    """(width at half prominence, index) of the interior maxima and minima that are visible."""
    visible = VISIBLE * float(np.abs(values).max())
    # Of a plateau the first and the last probe count: equal neighbours are one.
    first = np.flatnonzero(np.concatenate([[True], values[1:] != values[:-1]]))
    last = np.append(first[1:], len(values)) - 1
    found = []
    for sign in (1, -1):
        heights = sign * values[first]
        peaks = 1 + np.flatnonzero((heights[1:-1] > heights[:-2]) & (heights[1:-1] > heights[2:]))
        for k in peaks:
            left, right = heights[:k][::-1], heights[k + 1 :]
            foot = max(_foot(left, heights[k]), _foot(right, heights[k]))
            if heights[k] - foot > visible:
                level = (heights[k] + foot) / 2
                before, after = k - 1 - int(np.argmax(left < level)), k + 1 + int(np.argmax(right < level))
                begin = np.interp(level, heights[before : before + 2], times[[last[before], first[before + 1]]])
                end = np.interp(level, heights[[after, after - 1]], times[[first[after], last[after - 1]]])
                found.append((float(end - begin), int(first[k] + last[k]) // 2))
    return found


def _foot(side: Float[np.ndarray, "s"], height: float) -> float:
    """The lowest value on the way from a peak to a higher one, or to the end."""
    higher = np.flatnonzero(side > height)
    return float(side[: higher[0]].min() if len(higher) else side.min())
