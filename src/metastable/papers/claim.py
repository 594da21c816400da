"""`Claim`: a statement with the experiment that tests it and the rivals that it has to exclude; `Outcome`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metastable.arguments import OneLine, choice, flag, function, instance, integer, number, sequence, shown
from metastable.drawing import Figure
from metastable.errors import InvalidInput
from metastable.papers.verdict import (
    ESTIMATE,
    HOLDS,
    INCONCLUSIVE,
    RELATIONS,
    RivalVerdict,
    Verdict,
    decide,
    excess,
)

LARGEST_SEED = 2**31
"""Seeds of a claim are below this, so that what an experiment adds to it is a seed of numpy and of torch, too."""


@dataclass(frozen=True)
class Setting:
    """How large an experiment is run, and from which seed; together with the version it determines every digit.

    quick: minutes for all claims together. small: seconds, for the tests; it goes before quick.
    """

    quick: bool = False
    seed: int = 0
    small: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "quick", flag(self.quick, "quick"))
        object.__setattr__(self, "small", flag(self.small, "small"))
        object.__setattr__(self, "seed", integer(self.seed, "seed", least=0, most=LARGEST_SEED))

    def choose(self, quick: Any, full: Any, small: Any = None) -> Any:
        """The value for a quick run, for a full one, or for a small one (that of a quick run when None)."""
        if self.small:
            return quick if small is None else small
        return quick if self.quick else full

    def seeds(self, count: int, *stream: int) -> list[int]:
        """So many seeds for samples of a run; no two seeds or streams of numbers share any, but by rare chance.

        >>> Setting(seed=1).seeds(2, 7) == Setting(seed=1).seeds(3, 7)[:2] != Setting(seed=2).seeds(2, 7)
        True
        """
        used = [self.seed, *(integer(one, "stream", least=0) for one in stream)]
        drawn = np.random.SeedSequence(used).generate_state(integer(count, "count", least=0))
        return [int(one) % LARGEST_SEED for one in drawn]


Text = str | Callable[[Setting], str]
"""Words, or a function that gives them for the size of the run, so that they state the ranges of that run."""


@dataclass(frozen=True, eq=False, repr=False)
class Outcome(OneLine):
    """What an experiment measured.

    uncertainty: its standard error (0 for deterministic experiments). systematic: what is not noise in its
    error, as far as the experiment found it of itself. rivals: what the same measurement gives for each rival
    of the claim, a number or (number, standard error). curves: arrays for the figure. table: rows that a
    reader wants beside the number. note: one sentence. inconclusive: a sentence when the experiment cannot
    decide, else empty. warnings: what it was warned of. stopped: whether it broke off with an error.
    """

    measured: float
    uncertainty: float = 0.0
    curves: Mapping[str, np.ndarray] = field(default_factory=dict)
    table: Sequence[Mapping[str, Any]] = ()
    note: str = ""
    inconclusive: str = ""
    stopped: bool = False
    rivals: Mapping[str, float | tuple[float, float]] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    systematic: float = 0.0

    def __post_init__(self) -> None:
        _real(self.measured, "measured")
        _real(self.uncertainty, "uncertainty", least=0.0)
        number(self.systematic, "systematic", least=0.0)
        instance(self.note, "note", str, "a sentence")
        instance(self.inconclusive, "inconclusive", str, "a sentence")
        flag(self.stopped, "stopped")
        sequence(self.warnings, "warnings", str, "sentences")
        for row in sequence(self.table, "table", Mapping, "rows"):
            for key, value in _mapping(row, "a row of the table").items():
                if not (value is None or isinstance(value, str | bool | int | float | np.generic)):
                    raise InvalidInput(f"{key!r} of the table must be a number or a word, got {shown(value)}")
        for name, curve in _mapping(self.curves, "curves").items():
            if not isinstance(curve, np.ndarray) or curve.dtype.kind not in "biuf":
                raise InvalidInput(f"curve {shown(name)} must be an array of numbers, got {shown(curve)}")
        for name in _mapping(self.rivals, "rivals"):
            self.rival(name)

    def rival(self, name: str) -> tuple[float, float]:
        """Number and standard error of a rival; NaN for one that was not measured."""
        given = self.rivals.get(name, math.nan)
        pair = given if isinstance(given, tuple) and len(given) == 2 else (given, 0.0)
        return _real(pair[0], f"rival {shown(name)}"), _real(pair[1], f"standard error of {shown(name)}", least=0.0)


def as_rows(columns: Mapping[str, Sequence[Any] | np.ndarray]) -> list[dict[str, Any]]:
    """The columns of a table, all of one length, as the rows of `Outcome.table`.

    >>> as_rows({"n": np.array([1, 2]), "error": [0.5, 0.25]})
    [{'n': 1, 'error': 0.5}, {'n': 2, 'error': 0.25}]
    """
    plain = [values.tolist() if isinstance(values, np.ndarray) else values for values in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*plain, strict=True)]


@dataclass(frozen=True)
class Claim:
    """A statement in words, an experiment, the number expected of it, how far off it may be, and its rivals.

    relation: measured "equal" to expected within the tolerance, "at most" or "at least" expected (the tolerance is
    then slack). relative: the tolerance is a fraction of |expected|. reason: why this tolerance. source: whose
    statement it is, the paper's or metastable's estimate. rivals: by name, in a sentence each, the answers that a
    reader might expect instead; the claim holds only if each fails the same tolerance. open: why the claim is not
    decided yet. effort: rough cost, to start long ones first. Words and tolerance may be functions of the setting.

    >>> claim = Claim("two", "One and one is two.", lambda setting: Outcome(2.001, rivals={"three": 3.0}),
    ...               expected=2.0, tolerance=0.01, reason="rounding", source="arithmetic",
    ...               rivals={"three": "One and one is three."})
    >>> claim.judge(claim.experiment(Setting())).verdict
    'holds'
    """

    name: str
    statement: Text
    experiment: Callable[[Setting], Outcome]
    expected: float
    tolerance: float | Callable[[Setting], float]
    reason: Text
    source: str
    figure: Callable[[Outcome], Figure] | None = None
    relation: str = "equal"
    relative: bool = False
    theme: str = ""
    unit: str = ""
    effort: float = 1.0
    rivals: Mapping[str, str] = field(default_factory=dict, hash=False)
    open: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,79}", self.name):
            raise InvalidInput(
                f"name of a claim must be up to 80 letters, digits, '-', '_' and '.', got {shown(self.name)}"
            )
        function(self.experiment, "experiment")
        number(self.expected, "expected")
        choice(self.relation, "relation", RELATIONS)
        number(self.effort, "effort", least=0.0)
        flag(self.relative, "relative")
        for key in ("statement", "reason", "source", "theme", "unit", "open"):
            value = getattr(self, key)
            if not (isinstance(value, str) or (callable(value) and key in ("statement", "reason"))):
                raise InvalidInput(f"{key} of claim {self.name!r} must be words, got {shown(value)}")
        if self.figure is not None:
            function(self.figure, "figure")
        for rival, sentence in _mapping(self.rivals, f"rivals of claim {self.name!r}").items():
            instance(sentence, f"rival {rival!r}", str, "a sentence")
        if not callable(self.tolerance):
            self.allowed()

    @property
    def ours(self) -> bool:
        """Whether it is metastable's own estimate and not the paper's statement."""
        return self.source == ESTIMATE

    def allowed(self, setting: Setting | None = None) -> float:
        """The tolerance as an absolute number, in a run of this setting."""
        given = self.tolerance(setting or Setting()) if callable(self.tolerance) else self.tolerance
        found = number(given, f"tolerance of claim {self.name!r}", least=0.0)
        return found * abs(self.expected) if self.relative else found

    def words(self, setting: Setting | None = None) -> tuple[str, str]:
        """The statement, and the reason for the tolerance, for a run of this setting."""
        used = instance(setting, "setting", (Setting, type(None)), "a Setting") or Setting()
        return (
            self.statement if isinstance(self.statement, str) else self.statement(used),
            self.reason if isinstance(self.reason, str) else self.reason(used),
        )

    def judge(self, outcome: Outcome, seconds: float = 0.0, setting: Setting | None = None) -> Verdict:
        """Holds when it does by `decide` and every rival fails by it; else fails, or is inconclusive."""
        instance(outcome, "outcome", Outcome, "an Outcome")
        instance(setting, "setting", (Setting, type(None)), "a Setting")
        allowed = self.allowed(setting)
        rivals = tuple(self._rival(name, outcome, allowed) for name in self.rivals)
        verdict, note = self._decide(outcome, rivals, allowed)
        statement, reason = self.words(setting)
        figure, warned = self._draw(outcome)
        return Verdict(
            claim=self.name,
            statement=statement,
            source=self.source,
            theme=self.theme,
            unit=self.unit,
            expected=self.expected,
            measured=outcome.measured,
            tolerance=allowed,
            relation=self.relation,
            reason=reason,
            verdict=verdict,
            uncertainty=outcome.uncertainty,
            note=note,
            table=tuple(dict(row) for row in outcome.table),
            rivals=rivals,
            warnings=(*outcome.warnings, *warned),
            open=self.open,
            seconds=seconds,
            figure=figure,
            stopped=outcome.stopped,
        )

    def _decide(self, outcome: Outcome, rivals: Sequence[RivalVerdict], allowed: float) -> tuple[str, str]:
        """The verdict, and the sentence that goes with it."""
        if outcome.inconclusive:
            return INCONCLUSIVE, outcome.inconclusive
        if math.isnan(outcome.measured):
            return INCONCLUSIVE, f"the experiment gave {outcome.measured}"
        outside = excess(outcome.measured, self.expected, self.relation)
        verdict = decide(outside, outcome.uncertainty, allowed)
        if verdict == INCONCLUSIVE:
            error = f"standard error {outcome.uncertainty:.2g}"
            return verdict, f"{error}: neither inside nor outside the tolerance by two of them"
        alive = [rival.name for rival in rivals if not rival.fails]
        if verdict == HOLDS and alive:
            return INCONCLUSIVE, f"the experiment does not exclude {' and '.join(repr(name) for name in alive)}"
        return verdict, outcome.note

    def _rival(self, name: str, outcome: Outcome, allowed: float) -> RivalVerdict:
        measured, error = outcome.rival(name)
        verdict = decide(excess(measured, self.expected, self.relation), error, allowed)
        return RivalVerdict(name, self.rivals[name], measured, verdict, error)

    def _draw(self, outcome: Outcome) -> tuple[Figure | None, tuple[str, ...]]:
        """The figure; when its function raises, none and a sentence: a picture is no reason to lose a verdict."""
        if self.figure is None or not outcome.curves:
            return None, ()
        try:
            return self.figure(outcome), ()
        except Exception as error:
            return None, (f"the figure could not be drawn: {type(error).__name__}: {shown(str(error))}",)

    def __repr__(self) -> str:
        return f"Claim({self.name}, {RELATIONS[self.relation]}{self.expected:g} expected)"


def _real(value: Any, name: str, least: float = -math.inf) -> float:
    """A number, infinite or NaN for what could not be measured."""
    if isinstance(value, float | np.floating) and not math.isfinite(value):
        return float(value)
    return number(value, name, least=least)


def _mapping(value: Any, name: str) -> Mapping[str, Any]:
    """A mapping whose keys are words."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidInput(f"{name} must be a dictionary by names, got {shown(value)}")
    return value
