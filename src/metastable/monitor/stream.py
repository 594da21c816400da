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
from collections.abc import Sequence
from typing import Any

import numpy as np

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
        self._log_wealth = [-math.log(len(BETS))] * len(BETS)
        self._chance = np.random.default_rng(integer(seed, "seed", least=0, most=2**63 - 1))
        self._lock = threading.Lock()
        self.rate = number(rate, "rate", above=0.0, below=1.0)
        self.seen = 0
        self.highest = 0.0
        """Largest log wealth so far: what the alarm goes by."""

    @property
    def log_wealth(self) -> float:
        """Logarithm of the wealth: evidence against "nothing changed", in nats."""
        return _log_sum(self._log_wealth)

    @property
    def alarm(self) -> bool:
        """Whether the wealth ever reached 1/rate; the probability of that is at most `rate` if nothing changed."""
        return self.highest >= -math.log(self.rate)

    def add(self, score: Any) -> float:
        """Take a sum of surprises into account; returns the logarithm of the wealth."""
        value = number(score, "score")
        with self._lock:
            self._log_wealth = self._bet(self._rank(value))
            now = self.log_wealth
            self.highest = max(self.highest, now)
            return now

    def extend(self, scores: Any) -> float:
        """Take several scores into account, one after the other."""
        for score in numbers(scores, "scores"):
            self.add(score)
        return self.log_wealth

    def _rank(self, value: float) -> float:
        """(#{above} + U (#{tied} + 1)) / (all + 1) among everything seen; then the value is one of them."""
        place = int(np.searchsorted(self._edges, value))
        above = int(self._counts[place + 1 :].sum())
        tied = int(self._counts[place])
        total = self._total
        self._total += 1
        self._counts[place] += 1
        self.seen += 1
        return (above + (1.0 - self._chance.random()) * (tied + 1)) / (total + 1)

    def _bet(self, u: float) -> list[float]:
        """The logarithm of the money on every bet after the next rank; some of it is shared out evenly."""
        log_u = math.log(u)
        wealth = [w + math.log(e) + (e - 1.0) * log_u for w, e in zip(self._log_wealth, BETS, strict=True)]
        share = 1.0 / (self.seen + 2)
        keep, gift = math.log1p(-share), _log_sum(wealth) + math.log(share / len(BETS))
        return [_log_sum((w + keep, gift)) for w in wealth]

    def __repr__(self) -> str:
        return f"Stream({self.seen} scores, log wealth {self.log_wealth:.2f}, alarm at {-math.log(self.rate):.2f})"


def _log_sum(logs: Sequence[float]) -> float:
    """log sum exp; for four numbers, a million times."""
    top = max(logs)
    return top + math.log(sum(math.exp(x - top) for x in logs))
