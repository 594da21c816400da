"""How far a predicted curve can be trusted: the range on which it claims 15%, and what to warn of at the start.

The curve is the last of three Picard iterations (`picard`). They converge to the run itself, so that the difference
of the last two estimates what is still missing; where it is small and the whole correction is small, too, the curve
was within 15% of simulations (`tests/fuzz/forecast.py` judges it on random heads, tokens and temperatures).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from metastable.measure import Measure
from metastable.theory.phases import Times
from metastable.theory.picard import SAMPLE, Prediction
from metastable.theory.spectrum import Spectrum

LEAST_EFFECTIVE_TOKENS = 10.0
"""Below this many tokens per attention window n tokens do not emulate the mean field (T0.3)."""
LARGEST_DEFECT = 0.35
"""Largest rms|m_beta - m_0| at t = 0 for which the zero-temperature picture is a starting point (N10)."""
LARGEST_PROJECTOR = 10.0
"""Largest norm of the oblique projector onto E, the condition of E against the rest, for which ranges are tried."""
LARGEST_REMAINDER = 0.02
"""Largest |log| of the ratio of the last two iterations. W2 is no norm, and a difference of it can pass through 0:
the error was seen to reach four times that, and the range claims 15%."""
LARGEST_REACTION = 0.04
"""The same of the two iterations before: how the displaced crowd acts back on itself."""
LARGEST_CORRECTION = 0.2
"""Largest |log(first iteration/zero-temperature distance)|: beyond it the iterations do not start close enough to
their limit for their differences to tell the error."""
CONVERGENCE, NEGLIGIBLE = 0.5, 0.01
"""From one iteration to the next a difference shrinks by CONVERGENCE at least, unless it is below NEGLIGIBLE. Where
clusters grow out of the noise of n tokens (G2) every iteration adds as much as the last, and all are wrong."""
LARGEST_MOVE = 0.05
"""Largest rms distance of tokens between the last two iterations, in units of W2: a norm, which no cancellation
hides, and a bound of the change of W2. The error of the last one was seen to reach twice that."""
SINGLE_TOKEN = 3.65
"""W2 in units of sqrt(largest mass m) below which one token decides: in the wrong one of two clusters it adds 4 m
to W2^2, which changes W2 by 2 m/W2, and that is 15% of W2 at W2 = sqrt(2/0.15) sqrt(m)."""
SMALLEST_DISTANCE = 1e-8
"""Distances below this are rounding: the square root of that of W2^2."""
EARLY = 0.5
"""Share of the clustering time up to which tokens on E count as far from gathering."""
SAFE_MARGIN = 0.1
"""By how much every iteration must stay below the safe curve for it to count as safe."""
SAFE_REMAINDER = 0.05
"""Largest |log| of the ratio of the last two iterations where they vouch for the safe curve."""


@dataclass(frozen=True)
class Range:
    """The curve claims 15% from time 0 to `until`, nowhere when that is 0; `why` it ends there, in words."""

    until: float
    why: str


def empty_range(s: Spectrum, n: int, defect: float) -> Range | None:
    """The empty range where weights or start rule a prediction out, before a curve is computed; else None."""
    if s.kind in ("rotation", "jordan", "identity"):
        return Range(0.0, f"M = V B^T is of kind '{s.kind}': there is no approach to a limit to predict")
    if s.M.projector_norm > LARGEST_PROJECTOR:
        return Range(
            0.0, f"the projector onto E has norm {s.M.projector_norm:.3g}, more than {LARGEST_PROJECTOR:g}"
        )
    if not s.M.symmetric and s.dimension > 1 and n > SAMPLE:
        return Range(0.0, f"M = V B^T is not symmetric, dim E > 1, and there are more than {SAMPLE} tokens")
    if defect > LARGEST_DEFECT:
        return Range(0.0, "the start is too far from zero temperature")
    return None


def valid_range(times: Times, prediction: Prediction) -> Range:
    """Up to where the iterations agree, the correction to zero temperature is small, no single token weighs 15%,
    and neither the exit nor the gathering of tokens on E has come."""
    ends = (
        (EARLY * times.clustering, "tokens on E begin to gather in clusters"),
        (_last(times), f"the concentrated phase ends: {times.ends}"),
        (prediction.horizon, "the curve is not computed any further"),
    )
    last, why = min(ends)
    one = prediction.pi.spectrum.dimension == 1
    grain = SINGLE_TOKEN * math.sqrt(float(prediction.rho.mass.max())) if one else 0.0
    before = 0.0
    for t, (bare, first, second, third), moved in _notes(prediction, last):
        if min(third, bare) <= max(grain, SMALLEST_DISTANCE):
            return Range(before, "W2 has fallen to where a single token weighs 15%")
        reaction = abs(math.log(second / first))
        remainder = _remainder(first, second, third)
        if remainder > LARGEST_REMAINDER or reaction > LARGEST_REACTION or moved > LARGEST_MOVE * third:
            return Range(before, "the crowd that finite beta has displaced acts back on itself")
        if abs(math.log(first / bare)) > LARGEST_CORRECTION:
            return Range(before, "the correction to zero temperature is no longer small")
        before = min(t, last)
    return Range(last, why)


def safe_time(times: Times, prediction: Prediction, margin: float) -> float:
    """The part of times.safe on which all iterations stay below D0 + margin, and the last two agree."""
    before = 0.0
    for t, (bare, *iterates), moved in _notes(prediction, min(times.safe, prediction.horizon)):
        agree = _remainder(*iterates) <= SAFE_REMAINDER and moved <= LARGEST_MOVE * iterates[-1]
        if max(iterates) * (1 + SAFE_MARGIN) > bare + margin or not agree:
            return before
        before = min(t, times.safe, prediction.horizon)
    return before


def _remainder(first: float, second: float, third: float) -> float:
    """|log| of the ratio of the last two iterations; infinite where the iterations do not converge."""
    if min(first, second, third) <= 0:
        return 0.0 if first == second == third else math.inf
    last, before = abs(math.log(third / second)), abs(math.log(second / first))
    return last if last <= max(NEGLIGIBLE, CONVERGENCE * before) else math.inf


def _last(times: Times) -> float:
    """The exit, or where that is not known the end of M's regime."""
    return times.crossing if math.isnan(times.exit) else times.exit


def _notes(prediction: Prediction, last: float) -> Iterator[tuple[float, list[float], float]]:
    """(time, iterates, moved) of the prediction up to the first note from `last` on, solved as they are read."""
    i = 0
    while True:
        if i == len(prediction.times):
            prediction.extend(math.nextafter(prediction.times[-1], math.inf))
        yield prediction.times[i], prediction.iterates[i], prediction.moved[i]
        if prediction.times[i] >= last:
            return
        i += 1


def warnings_at_the_start(s: Spectrum, rho: Measure, kappa: float, n_eff: float, defect: float) -> tuple[str, ...]:
    """What is known to be wrong before anything moves, one sentence each."""
    found = []
    if defect > LARGEST_DEFECT:
        found.append(
            f"the zero-temperature picture is off at t = 0 already: rms|m_beta - m_0| = {defect:.2f} "
            f"(more than {LARGEST_DEFECT:g}); read no curve from it"
        )
    if n_eff < LEAST_EFFECTIVE_TOKENS:
        found.append(
            f"{rho.n} tokens cannot emulate the mean field at this temperature: n_eff = {n_eff:.2g} tokens share "
            f"an attention window and at least {LEAST_EFFECTIVE_TOKENS:g} are needed; isolated tokens follow V "
            "early, and the forecast is one of these tokens, not of the law behind them"
        )
    if kappa < rho.d - 1:
        found.append(f"this is not low temperature: kappa = {kappa:.3g} is below d - 1 = {rho.d - 1}")
    if s.M.projector_norm > LARGEST_PROJECTOR:
        found.append(
            f"M = V B^T is far from normal: the projector onto E has norm {s.M.projector_norm:.3g}, and no range "
            f"is claimed above {LARGEST_PROJECTOR:g}"
        )
    found.extend(a.sentence for a in s.assumptions if a.name == "limit exists" and not a.holds)
    return tuple(found)
