"""`Stream`: an anytime-valid test that a stream of scores is what was calibrated; looking often costs nothing.

Every score is ranked among the calibration scores and all that came before it, ties broken at random. While the
stream is exchangeable with the calibration, these ranks u are independent and uniform, exactly, however few the
calibration scores are. A bet e u^(e - 1) on small u has mean one, so the wealth of a player who shares his money
between such bets is a martingale, and by Ville's inequality
    P(the wealth ever reaches 1/a) <= a,    whenever and however often one looks.
The shares are mixed anew at rate 1/t (fixed share, Herbster & Warmuth): a change after t quiet scores costs log t.

Memory is flat: a score is counted in one of a fixed number of bins, and equal bins are ties.
"""

from __future__ import annotations

import math
import threading
from typing import Any

import numba
import numpy as np
from jaxtyping import Float

from metastable.arguments import instance, integer, number, numbers
from metastable.monitor.conformal import Conformal

BETS = (1.0, 0.7, 0.4, 0.2)
"""Exponents e of the bets; 1 is no bet. A stream with a share of wild scores is won by the small ones."""
BINS, FARTHEST = 4096, 16.0
"""Edges of the bins, evenly spread in asinh(score) up to sinh(16) = 4e6: one percent wide at any score. They must
not depend on the calibration scores, or those would be ranked otherwise than the scores of the stream."""


class Stream:
    """Wealth against the hypothesis that nothing changed: `add(score)` after every text, `alarm` from 1/rate on."""

    def __init__(self, whole: Conformal, rate: float, seed: int) -> None:
        scores = instance(whole, "whole", Conformal, "a Conformal: see Monitor.stream").scores
        self._edges = np.sinh(np.linspace(-FARTHEST, FARTHEST, BINS))
        self._counts = np.bincount(np.searchsorted(self._edges, scores), minlength=len(self._edges) + 1)
        self._total = len(scores)
        self._log_wealth = np.full(len(BETS), -math.log(len(BETS)))
        self._chance = np.random.default_rng(integer(seed, "seed", least=0, most=2**63 - 1))
        self._lock = threading.Lock()
        self.rate = number(rate, "rate", above=0.0, below=1.0)
        self.seen = 0
        self.highest = 0.0
        """Largest log wealth so far: what the alarm goes by."""

    @property
    def log_wealth(self) -> float:
        """Logarithm of the wealth: evidence against "nothing changed", in nats."""
        return float(_log_sum(self._log_wealth))

    @property
    def alarm(self) -> bool:
        """Whether the wealth ever reached 1/rate; the probability of that is at most `rate` if nothing changed."""
        return self.highest >= -math.log(self.rate)

    def add(self, score: Any) -> float:
        """Take a sum of surprises into account; returns the logarithm of the wealth."""
        return self._take(np.array([number(score, "score")]))

    def extend(self, scores: Any) -> float:
        """Take several scores into account, one after the other."""
        return self._take(np.array(numbers(scores, "scores"), dtype=np.float64))

    def _take(self, scores: Float[np.ndarray, "n"]) -> float:
        with self._lock:
            chance = self._chance.random(len(scores))
            state = (self._edges, self._counts, self._total, self.seen, self._log_wealth)
            self.highest = max(self.highest, _played(scores, chance, *state))
            self._total += len(scores)
            self.seen += len(scores)
            return self.log_wealth

    def __repr__(self) -> str:
        return f"Stream({self.seen} scores, log wealth {self.log_wealth:.2f}, alarm at {-math.log(self.rate):.2f})"


@numba.njit(nogil=True, cache=True)
def _log_sum(logs):  # type: ignore[no-untyped-def]
    top, total = -np.inf, 0.0
    for x in logs:
        top = max(top, x)
    for x in logs:
        total += math.exp(x - top)
    return top + math.log(total)


@numba.njit(nogil=True, cache=True)
def _rank(score, chance, edges, counts, total):  # type: ignore[no-untyped-def]
    """(#{above} + U (#{tied} + 1)) / (all + 1) among everything seen; then the score is one of them."""
    place = np.searchsorted(edges, score)
    above, tied = counts[place + 1 :].sum(), counts[place]
    counts[place] += 1
    return (above + (1.0 - chance) * (tied + 1)) / (total + 1)


@numba.njit(nogil=True, cache=True)
def _bet(u, seen, wealth):  # type: ignore[no-untyped-def]
    """The logarithm of the money on every bet after the next rank; some of it is shared out evenly."""
    for k, e in enumerate(BETS):
        wealth[k] += math.log(e) + (e - 1.0) * math.log(u)
    share = 1.0 / (seen + 2)
    keep, gift = math.log1p(-share), _log_sum(wealth) + math.log(share / len(BETS))
    for k in range(len(BETS)):
        wealth[k] = _log_sum((wealth[k] + keep, gift))


@numba.njit(nogil=True, cache=True)
def _played(scores, chance, edges, counts, total, seen, wealth):  # type: ignore[no-untyped-def]
    """Take scores into account, one after the other; the largest logarithm of the wealth on the way."""
    highest = -np.inf
    for i in range(len(scores)):
        _bet(_rank(scores[i], chance[i], edges, counts, total + i), seen + i + 1, wealth)
        highest = max(highest, _log_sum(wealth))
    return highest
