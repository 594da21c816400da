"""`Claim`: a statement of a paper with the experiment that tests it; `Verdict`: what came out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metastable.drawing import Figure
from metastable.errors import InvalidInput

HOLDS, FAILS, INCONCLUSIVE = "holds", "fails", "inconclusive"
RELATIONS = {"equal": "", "at most": "≤ ", "at least": "≥ "}
"""How a measured number may stand to the expected one, and the sign that says so in front of the latter."""


@dataclass(frozen=True)
class Setting:
    """How large an experiment is run, and from which seed; together with the version it determines every digit."""

    quick: bool = False
    seed: int = 0

    def choose(self, quick: Any, full: Any) -> Any:
        """The value for a quick run or for a full one."""
        return quick if self.quick else full


@dataclass(frozen=True, eq=False)
class Outcome:
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


def as_rows(columns: Mapping[str, Sequence[Any] | np.ndarray]) -> list[dict[str, Any]]:
    """The columns of a table, all of one length, as the rows of `Outcome.table`.

    >>> as_rows({"n": np.array([1, 2]), "error": [0.5, 0.25]})
    [{'n': 1, 'error': 0.5}, {'n': 2, 'error': 0.25}]
    """
    plain = [values.tolist() if isinstance(values, np.ndarray) else values for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*plain, strict=True)]


@dataclass(frozen=True)
class Claim:
    """A statement in words, an experiment, the number expected of it, and how far off it may be.

    relation: measured "equal" to expected within the tolerance, "at most" or "at least" expected (the tolerance is
    then slack). relative: the tolerance is a fraction of |expected|. reason: why this tolerance. source: whose
    statement it is, the paper's or metastable's estimate. effort: rough cost, to start long ones first.

    >>> claim = Claim("two", "One and one is two.", lambda setting: Outcome(2.001), expected=2.0, tolerance=0.01,
    ...               reason="rounding", source="arithmetic")
    >>> claim.judge(claim.experiment(Setting())).verdict
    'holds'
    """

    name: str
    statement: str
    experiment: Callable[[Setting], Outcome]
    expected: float
    tolerance: float
    reason: str
    source: str
    figure: Callable[[Outcome], Figure] | None = None
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

    def judge(self, outcome: Outcome, seconds: float = 0.0) -> Verdict:
        """Holds, fails, or inconclusive when the error of the experiment itself is too large to tell."""
        if outcome.inconclusive or not math.isfinite(outcome.measured):
            verdict = INCONCLUSIVE
            note = outcome.inconclusive or f"the experiment gave {outcome.measured}"
        else:
            excess = self._excess(outcome.measured)
            if outcome.uncertainty > self.allowed > 0:
                verdict = INCONCLUSIVE
                note = f"standard error {outcome.uncertainty:.2g} exceeds the tolerance {self.allowed:.2g}"
            elif excess <= self.allowed:
                verdict, note = HOLDS, outcome.note
            elif excess <= self.allowed + 2 * outcome.uncertainty:
                verdict, note = INCONCLUSIVE, "outside the tolerance by less than two standard errors"
            else:
                verdict, note = FAILS, outcome.note
        return Verdict(
            claim=self.name,
            statement=self.statement,
            source=self.source,
            theme=self.theme,
            unit=self.unit,
            expected=self.expected,
            measured=outcome.measured,
            tolerance=self.allowed,
            relation=self.relation,
            reason=self.reason,
            verdict=verdict,
            uncertainty=outcome.uncertainty,
            note=note,
            table=tuple(dict(row) for row in outcome.table),
            seconds=seconds,
            figure=self._draw(outcome),
            stopped=outcome.stopped,
        )

    def _excess(self, measured: float) -> float:
        difference = measured - self.expected
        return {"equal": abs(difference), "at most": difference, "at least": -difference}[self.relation]

    def _draw(self, outcome: Outcome) -> Figure | None:
        return self.figure(outcome) if self.figure is not None and outcome.curves else None


@dataclass(frozen=True, eq=False)
class Verdict:
    """The outcome of one claim; `holds` is True only for the verdict "holds"."""

    claim: str
    expected: float
    measured: float
    tolerance: float
    reason: str
    verdict: str
    figure: Figure | None = field(default=None, repr=False)
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

    @property
    def fails(self) -> bool:
        """Whether the claim fails; one that is inconclusive neither holds nor fails."""
        return self.verdict == FAILS

    @property
    def sign(self) -> str:
        """What stands in front of the expected number: nothing, "≤ " or "≥ "."""
        return RELATIONS[self.relation]

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
