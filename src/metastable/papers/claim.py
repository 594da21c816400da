"""`Claim`: a statement of a paper with the experiment that tests it; `Verdict`: what came out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metastable.errors import InvalidInput
from metastable.papers.drawing import Drawing

HOLDS, FAILS, INCONCLUSIVE = "holds", "fails", "inconclusive"
RELATIONS = ("equal", "at most", "at least")


@dataclass(frozen=True)
class Setting:
    """How large an experiment is run, and from which seed; together with the version it determines every digit."""

    quick: bool = False
    seed: int = 0

    def choose(self, quick: Any, full: Any) -> Any:
        """The value for a quick run or for a full one."""
        return quick if self.quick else full


@dataclass(frozen=True, eq=False)
class Finding:
    """What an experiment measured.

    uncertainty: its standard error (0 for deterministic experiments). curves: arrays for the figure. table: rows
    that a reader wants beside the number. note: one sentence. inconclusive: a sentence when the experiment cannot
    decide, else empty. stopped: whether it broke off with an error.
    """

    measured: float
    uncertainty: float = 0.0
    curves: Mapping[str, np.ndarray] = field(default_factory=dict)
    table: Sequence[Mapping[str, Any]] = ()
    note: str = ""
    inconclusive: str = ""
    stopped: bool = False


@dataclass(frozen=True)
class Claim:
    """A statement in words, an experiment, the number expected of it, and how far off it may be.

    relation: measured "equal" to expected within the tolerance, "at most" or "at least" expected (the tolerance is
    then slack). relative: the tolerance is a fraction of |expected|. reason: why this tolerance. source: whose
    statement it is, the paper's or metastable's estimate. effort: rough cost, to start long ones first.

    >>> claim = Claim("two", "One and one is two.", lambda setting: Finding(2.001), expected=2.0, tolerance=0.01,
    ...               reason="rounding", source="arithmetic")
    >>> claim.judge(claim.experiment(Setting())).verdict
    'holds'
    """

    name: str
    statement: str
    experiment: Callable[[Setting], Finding]
    expected: float
    tolerance: float
    reason: str
    source: str
    figure: Callable[[Finding], Drawing] | None = None
    relation: str = "equal"
    relative: bool = False
    theme: str = ""
    unit: str = ""
    effort: float = 1.0

    def __post_init__(self) -> None:
        if self.relation not in RELATIONS:
            raise InvalidInput(f"relation must be one of {', '.join(RELATIONS)}, got {self.relation!r}")
        if not self.tolerance >= 0:
            raise InvalidInput(f"tolerance of claim {self.name!r} must be >= 0, got {self.tolerance}")

    @property
    def allowed(self) -> float:
        """The tolerance as an absolute number."""
        return self.tolerance * abs(self.expected) if self.relative else self.tolerance

    def judge(self, finding: Finding, seconds: float = 0.0) -> Verdict:
        """Holds, fails, or inconclusive when the error of the experiment itself is too large to tell."""
        if finding.inconclusive or not math.isfinite(finding.measured):
            verdict = INCONCLUSIVE
            note = finding.inconclusive or f"the experiment gave {finding.measured}"
        else:
            excess = self._excess(finding.measured)
            if finding.uncertainty > self.allowed > 0:
                verdict = INCONCLUSIVE
                note = f"standard error {finding.uncertainty:.2g} exceeds the tolerance {self.allowed:.2g}"
            elif excess <= self.allowed:
                verdict, note = HOLDS, finding.note
            elif excess <= self.allowed + 2 * finding.uncertainty:
                verdict, note = INCONCLUSIVE, "outside the tolerance by less than two standard errors"
            else:
                verdict, note = FAILS, finding.note
        return Verdict(
            claim=self.name,
            statement=self.statement,
            source=self.source,
            theme=self.theme,
            unit=self.unit,
            expected=self.expected,
            measured=finding.measured,
            tolerance=self.allowed,
            relation=self.relation,
            reason=self.reason,
            verdict=verdict,
            uncertainty=finding.uncertainty,
            note=note,
            table=tuple(dict(row) for row in finding.table),
            seconds=seconds,
            figure=self._draw(finding),
            stopped=finding.stopped,
        )

    def _excess(self, measured: float) -> float:
        difference = measured - self.expected
        return {"equal": abs(difference), "at most": difference, "at least": -difference}[self.relation]

    def _draw(self, finding: Finding) -> Drawing | None:
        return self.figure(finding) if self.figure is not None and finding.curves else None


@dataclass(frozen=True, eq=False)
class Verdict:
    """The outcome of one claim; `holds` is True only for the verdict "holds"."""

    claim: str
    expected: float
    measured: float
    tolerance: float
    reason: str
    verdict: str
    figure: Drawing | None = field(default=None, repr=False)
    seconds: float = 0.0
    relation: str = "equal"
    uncertainty: float = 0.0
    statement: str = ""
    source: str = ""
    theme: str = ""
    unit: str = ""
    note: str = ""
    table: tuple[dict[str, Any], ...] = field(default=(), repr=False)
    resumed: bool = False
    stopped: bool = False

    @property
    def holds(self) -> bool:
        """Whether the claim holds; a claim that fails or is inconclusive does not."""
        return self.verdict == HOLDS

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON; numbers that are not finite become None. Without the figure."""
        named = {key: value for key, value in self.__dict__.items() if key not in ("figure", "table")}
        return {key: _plain(value) for key, value in named.items()} | {
            "holds": self.holds,
            "table": [{key: _plain(value) for key, value in row.items()} for row in self.table],
        }


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
