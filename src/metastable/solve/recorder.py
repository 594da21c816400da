"""`Recorder`: the observer that keeps the tokens at the save times."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence

from torch import Tensor

from metastable.solve.frames import Frames
from metastable.solve.observer import Observer, Run
from metastable.solve.problem import FRAMES_AT_ONCE, Step


class Recorder(Observer):
    """Hands the tokens at the save times to `frames`, in memory or on disk, from number `saved` on."""

    def __init__(self, times: Sequence[float], frames: Frames, saved: int = 0) -> None:
        self.times, self.frames, self.saved = times, frames, saved

    def begin(self, run: Run) -> None:
        """Keep the tokens at the start, if that is a save time."""
        self._keep_up_to(run.start.t, Step.at_rest(run.start).at)

    def step(self, step: Step) -> None:
        """Keep the tokens at all save times inside the step."""
        self._keep_up_to(step.t, step.at)

    def _keep_up_to(self, t: float, tokens: Callable[[Sequence[float]], list[Tensor]]) -> None:
        due = self.times[self.saved : bisect.bisect_right(self.times, t + 4 * math.ulp(t))]
        # In small groups, so that a step that spans many save times does not hold them all in memory.
        for first in range(0, len(due), FRAMES_AT_ONCE):
            for points in tokens(due[first : first + FRAMES_AT_ONCE]):
                self.frames.keep(self.saved, points)
                self.saved += 1
