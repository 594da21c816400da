"""How far a predicted curve can be trusted: the range on which it claims 15%, and what to warn of at the start.

The thresholds were chosen on sixty random heads (`random_forecast` of the tests, seeds 100 to 159) such that the
curve stays within 15% of simulations; the tests judge them on other heads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from metastable.measure import Measure
from metastable.theory.phases import Times
from metastable.theory.picard import BLOCK, Prediction
from metastable.theory.spectrum import Spectrum

LEAST_EFFECTIVE_TOKENS = 10.0
"""Below this many tokens per attention window n tokens do not emulate the mean field (T0.3)."""
LARGEST_DEFECT = 0.35
"""Largest rms|m_beta - m_0| at t = 0 for which the zero-temperature picture is a starting point (N10)."""
LARGEST_REACTION = 0.04
"""Largest |log| of the ratio of the two Picard iterations, the estimate of what the curve still misses."""
LARGEST_CORRECTION = 0.2
"""Largest |log(prediction/zero-temperature distance)| that counts as a first-order correction; beyond it the second
order, which the prediction does not know, was seen to reach 15%."""
LARGEST_CORRECTION_OF_TWO = 0.3
"""The same where a second iteration vouches for the first."""
LEAST_TAIL_TOKENS = 1.0
"""Fewest tokens per attention window near the separatrix, where they thin out like e^{-k g_out t} (N4)."""
SINGLE_TOKEN = 3.65
"""W2 in units of sqrt(largest mass m) below which one token decides: in the wrong one of two clusters it adds 4 m
to W2^2, which changes W2 by 2 m/W2, and that is 15% of W2 at W2 = sqrt(2/0.15) sqrt(m)."""
SMALLEST_DISTANCE = 1e-8
"""Distances below this are rounding: the square root of that of W2^2."""
EARLY = 0.5
"""Share of the clustering time up to which tokens on E count as far from gathering."""


@dataclass(frozen=True)
class Range:
    """The curve claims 15% from time 0 to `until`, nowhere when that is 0; `why` it ends there, in words."""

    until: float
    why: str


def empty_range(s: Spectrum, n_eff: float, defect: float) -> Range | None:
    """The empty range where weights or start rule a prediction out, before a curve is computed; else None."""
    if s.kind in ("rotation", "jordan", "identity"):
        return Range(0.0, f"M = V B^T is of kind '{s.kind}': there is no approach to a limit to predict")
    if not s.M.symmetric:
        return Range(0.0, "M = V B^T is not symmetric")
    if n_eff < LEAST_EFFECTIVE_TOKENS:
        return Range(0.0, "too few tokens share an attention window")
    if defect > LARGEST_DEFECT:
        return Range(0.0, "the start is too far from zero temperature")
    return None


def valid_range(s: Spectrum, n_eff: float, times: Times, prediction: Prediction) -> Range:
    """Up to where the correction to zero temperature is of first order and tokens are many wherever they matter.

    That is: attention windows near the separatrix still hold tokens, no single token weighs 15%, and tokens on E
    are far from gathering in clusters.
    """
    k = s.dimension
    thinning, clustering = math.log(n_eff / LEAST_TAIL_TOKENS) / (k * s.g_out), EARLY * times.clustering
    last = min(thinning, clustering)
    grain = SINGLE_TOKEN * math.sqrt(float(prediction.rho.mass.max())) if k == 1 else 0.0
    correction = LARGEST_CORRECTION_OF_TWO if prediction.follows_all else LARGEST_CORRECTION
    i = 0
    while prediction.times[i] < last:
        value, first, bare = prediction.values[i], prediction.one_iteration[i], prediction.zero_temperature[i]
        before = prediction.times[max(i - 1, 0)]
        if min(value, bare) <= max(grain, SMALLEST_DISTANCE):
            return Range(before, "W2 has fallen to where a single token weighs 15%")
        if prediction.follows_all and abs(math.log(value / first)) > LARGEST_REACTION:
            return Range(before, "the crowd that finite beta has displaced acts back on itself")
        if abs(math.log(first / bare)) > correction:
            return Range(before, "the correction to zero temperature is no longer of first order")
        i += 1
        if i == len(prediction.times):
            prediction.extend(prediction.times[-1] + (BLOCK - 0.5) * prediction.step)
    if clustering < thinning:
        return Range(last, "tokens on E begin to gather in clusters")
    return Range(last, "attention windows near the separatrix run out of tokens")


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
            f"an attention window and at least {LEAST_EFFECTIVE_TOKENS:g} are needed; isolated tokens follow V at "
            "once"
        )
    if kappa < rho.d - 1:
        found.append(f"this is not low temperature: kappa = {kappa:.3g} is below d - 1 = {rho.d - 1}")
    if not s.M.symmetric:
        found.append("M = V B^T is not symmetric: rates and curves are extrapolations, no range is claimed")
    found.extend(a.sentence for a in s.assumptions if a.name == "limit exists" and not a.holds)
    return tuple(found)
