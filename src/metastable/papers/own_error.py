"""`OwnError`: a claim whose tolerance is the error that its run found of itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from metastable.arguments import instance, number
from metastable.papers.claim import Claim, Outcome, Setting
from metastable.papers.verdict import SURE, Verdict

CHANCE = 3.0 + SURE
"""Standard errors of the run in its tolerance: a true value is within three of them in 997 of 1000 runs, and has to
be inside by SURE more to hold. With two in place of three, one of the dozens of claims that are run together would
be left undecided by chance in most runs."""


def with_systematic(outcome: Outcome, error: float) -> Outcome:
    """The outcome of a run that found this systematic error of itself: steps, the next order of an expansion.

    >>> with_systematic(Outcome(1.02, 0.01), -0.03).systematic
    0.03
    """
    instance(outcome, "outcome", Outcome, "an Outcome")
    return replace(outcome, systematic=abs(number(error, "error")))


@dataclass(frozen=True)
class OwnError(Claim):
    """A claim with the tolerance CHANCE * (standard error of the run) + (systematic error that the run found).

    So no number that an earlier run gave decides. The reason says how the systematic error was found, after which
    the verdict gives both in digits.

    >>> claim = OwnError("two", "One and one is two.", lambda setting: Outcome(2.001, 0.01, rivals={"three": 3.0}),
    ...                  expected=2.0, reason="what is left", source="arithmetic", rivals={"three": "It is three."})
    >>> verdict = claim.judge(with_systematic(claim.experiment(Setting()), 0.02))
    >>> verdict.verdict, verdict.tolerance
    ('holds', 0.07)
    """

    tolerance: float | Callable[[Setting], float] = field(default=0.0, kw_only=True)

    def judge(self, outcome: Outcome, seconds: float = 0.0, setting: Setting | None = None) -> Verdict:
        """As any claim, with the tolerance of this outcome."""
        instance(outcome, "outcome", Outcome, "an Outcome")
        _, reason = self.words(setting)
        allowed = CHANCE * outcome.uncertainty + outcome.systematic
        parts = []
        if outcome.uncertainty:
            parts.append(f"{CHANCE:g} standard errors of this run, {outcome.uncertainty:.2g} each")
        if outcome.systematic:
            parts.append(f"{outcome.systematic:.2g} for {reason}")
        known = replace(
            self,
            tolerance=allowed if math.isfinite(allowed) else 0.0,
            reason=", and ".join(parts) or reason,
        )
        return super(OwnError, known).judge(outcome, seconds, setting)
