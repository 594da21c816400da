"""`Judgement`: what is said about the texts of one run, as arrays; a `Score` is made when somebody looks at it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Integer

from metastable.monitor.score import EMPTY, IN_RANGE, OUTSIDE, ChannelScore, Mark, Score


@dataclass(frozen=True, eq=False)
class Judgement:
    """b texts, c channels."""

    names: tuple[str, ...]
    lengths: Integer[np.ndarray, "b"]
    judged: Bool[np.ndarray, "b"]
    """Whether a text is in the calibrated range; nothing is said about the others."""
    p: Float[np.ndarray, "b"]
    alarm: Bool[np.ndarray, "b"]
    sums: Float[np.ndarray, "b"]
    """Weighted sums of the surprises."""
    values: Float[np.ndarray, "b c"]
    each: Float[np.ndarray, "b c"]
    """p-values of the channels."""
    surprise: Float[np.ndarray, "b c"]
    place: Integer[np.ndarray, "b c"]
    marks: dict[int, tuple[Mark, ...]]
    """The tokens that carry an alarm, by text."""

    def score(self, b: int) -> Score:
        """What is said about one text."""
        length = int(self.lengths[b])
        if not self.judged[b]:
            return Score.unjudged(OUTSIDE if length else EMPTY, length)
        rows = (self.values[b].tolist(), self.each[b].tolist(), self.surprise[b].tolist(), self.place[b].tolist())
        channels = {name: ChannelScore(*row) for name, row in zip(self.names, zip(*rows, strict=True), strict=True)}
        lead = self.names[int(self.surprise[b].argmax())]
        return Score(
            IN_RANGE, float(self.p[b]), bool(self.alarm[b]), float(self.sums[b]), length, lead,
            channels[lead].layer, channels, self.marks.get(b, ()),
        )  # fmt: skip

    def scores(self) -> list[Score]:
        """What is said about every text."""
        return [self.score(b) for b in range(len(self.lengths))]
