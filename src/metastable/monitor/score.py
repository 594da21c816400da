"""`Score`: what the monitor says about one text."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from metastable.arguments import OneLine

IN_RANGE, OUTSIDE, EMPTY = "in range", "outside the calibrated range", "no tokens"


@dataclass(frozen=True, repr=False)
class ChannelScore(OneLine):
    """One channel: its score with the trend of length taken away, conformal p, surprise, and the place it names."""

    value: float
    p: float
    surprise: float
    """-log of the share of texts that are as unusual, by the tail where ranks end."""
    layer: int
    """The place that says so: l is the input of layer l, the number of layers is the output; -1: no place."""


@dataclass(frozen=True, repr=False)
class Mark(OneLine):
    """A token that carries an alarm: its number among the content tokens of its text, and its share."""

    number: int
    share: float


@dataclass(frozen=True, repr=False)
class Score(OneLine):
    """What the monitor says about one text.

    p: conformal p-value of the sum of surprises; 1 where `status` is not "in range", since then nothing is said.
    alarm: p <= the nominal rate. channel, layer, marks: which channel is most surprised, where, at which tokens.
    """

    status: str
    p: float
    alarm: bool
    surprise: float
    length: int
    channel: str
    layer: int
    channels: dict[str, ChannelScore]
    marks: tuple[Mark, ...] = ()

    @classmethod
    def unjudged(cls, status: str, length: int) -> Score:
        """The answer for a text that nothing can be said about."""
        return cls(status, 1.0, False, 0.0, length, "", -1, {})

    @property
    def in_range(self) -> bool:
        """Whether the text was judged at all."""
        return self.status == IN_RANGE

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and strings."""
        return asdict(self) | {"marks": [asdict(mark) for mark in self.marks]}

    def sentence(self) -> str:
        """The score in words."""
        if not self.in_range:
            return f"{self.status} ({self.length} tokens): not judged"
        if not self.alarm:
            return f"p = {self.p:.3g}: nothing unusual"
        where = f" at place {self.layer}" if self.layer >= 0 else ""
        return f"ALARM, p = {self.p:.3g}: {self.channel}{where} is most surprised"
