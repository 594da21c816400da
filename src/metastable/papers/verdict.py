"""`Verdict`: what became of a claim and of its rivals, by one rule; `passed`: whether all of them stand."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from metastable.arguments import OneLine, sequence
from metastable.drawing import Figure

HOLDS, FAILS, INCONCLUSIVE, OPEN = "holds", "fails", "inconclusive", "open"
RELATIONS = {"equal": "", "at most": "≤ ", "at least": "≥ "}
"""How a measured number may stand to the expected one, and the sign that says so in front of the latter."""
ESTIMATE = "metastable's estimate"
"""The source of a claim that is metastable's own, whatever paper it stands beside."""
SURE = 2.0
"""Standard errors by which a number has to be inside to hold, or outside to fail: 95% for a normal error."""


def excess(measured: float, expected: float, relation: str) -> float:
    """How far a number is outside of what is expected; below zero inside an inequality.

    >>> excess(1.25, 1.0, "equal"), excess(0.5, 1.0, "at most"), excess(0.5, 1.0, "at least")
    (0.25, -0.5, 0.5)
    """
    difference = measured - expected
    return {"equal": abs(difference), "at most": difference, "at least": -difference}[relation]


def decide(outside: float, uncertainty: float, allowed: float) -> str:
    """One rule for a claim and for its rivals: excess + 2 se <= allowed holds, excess - 2 se > allowed fails.

    Between them, and for what is not a number, the experiment cannot tell.

    >>> decide(0.1, 0.0, 0.2), decide(0.1, 0.1, 0.2), decide(0.5, 0.1, 0.2)
    ('holds', 'inconclusive', 'fails')
    """
    if math.isfinite(outside) and outside + SURE * uncertainty <= allowed:
        return HOLDS
    return FAILS if outside - SURE * uncertainty > allowed else INCONCLUSIVE


@dataclass(frozen=True, repr=False)
class RivalVerdict(OneLine):
    """What the experiment of a claim says of another answer to the same question, by the same rule."""

    name: str
    statement: str
    measured: float
    verdict: str
    uncertainty: float = 0.0

    @property
    def fails(self) -> bool:
        """Whether the experiment excludes this answer."""
        return self.verdict == FAILS


@dataclass(frozen=True, eq=False)
class Verdict:
    """The outcome of one claim; `holds` is True only when it holds and every rival fails.

    rivals: what became of the answers that a reader might expect instead. open: why the claim is not decided yet,
    if it is declared so. warnings: what the experiment was warned of. note: why it does not hold, or a remark.
    """

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
    rivals: tuple[RivalVerdict, ...] = ()
    warnings: tuple[str, ...] = ()
    open: str = ""
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
    def standing(self) -> str:
        """The verdict, or "open" for a claim that is declared so and does not hold."""
        return OPEN if self.open and not self.holds and not self.stopped else self.verdict

    @property
    def ours(self) -> bool:
        """Whether the claim is metastable's own estimate and not the paper's statement."""
        return self.source == ESTIMATE

    @property
    def sign(self) -> str:
        """What stands in front of the expected number: nothing, "≤ " or "≥ "."""
        return RELATIONS[self.relation]

    @property
    def rival(self) -> RivalVerdict | None:
        """The rival that came nearest to passing; None only when the claim has none."""

        def outside(rival: RivalVerdict) -> float:
            found = excess(rival.measured, self.expected, self.relation) - SURE * rival.uncertainty
            return -math.inf if math.isnan(found) else found

        return min(self.rivals, key=outside, default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and strings, for JSON; numbers that are not finite become None. Without the figure."""
        record = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "figure"}
        return _plain(
            record
            | {
                "rivals": [one.__dict__ | {"fails": one.fails} for one in self.rivals],
                "rival": None if self.rival is None else self.rival.name,
                "holds": self.holds,
                "standing": self.standing,
                "ours": self.ours,
            }
        )

    def __repr__(self) -> str:
        return f"Verdict({self.claim}: {self.verdict}, {self.measured:.4g} for {self.sign}{self.expected:.4g})"


def passed(verdicts: Sequence[Verdict]) -> bool:
    """Whether every claim holds, those declared open excepted: the exit code of `verify`, its JSON and its page.

    No claim at all does not pass, nor does one whose experiment broke off.
    """
    found = sequence(verdicts, "verdicts", Verdict, "verdicts")
    return bool(found) and all(verdict.standing in (HOLDS, OPEN) for verdict in found)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
