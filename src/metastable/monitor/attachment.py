"""`Attachment`: a monitor that listens to a running model until it is detached."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable

import numpy as np

from metastable.monitor.calibration import Calibration
from metastable.monitor.judgement import Judgement
from metastable.monitor.listening import Ear, Listening
from metastable.monitor.score import Score
from metastable.monitor.stream import Stream
from metastable.monitor.trace import Trace


class Attachment:
    """Scores of the texts that a model reads, as it reads them; the model computes what it always did, bit by bit.

    `recent` holds the last scores, `stream` the test for change; `detach()` (or the end of a `with` block) leaves
    nothing behind. Several threads may run the model.
    """

    def __init__(
        self,
        ear: Ear,
        calibration: Calibration,
        *,
        rate: float,
        sample_rate: float,
        keep: int,
        on_score: Callable[[Score], None] | None,
        stream: Stream,
        seed: int,
    ) -> None:
        self._calibration = calibration
        self._rate = rate
        self._sample_rate = sample_rate
        self._on_score = on_score
        self._chance = random.Random(seed)
        self._ties = np.random.default_rng(seed)
        self._lock = threading.Lock()
        self.stream = stream
        self._recent: deque[tuple[Judgement, int]] = deque(maxlen=keep)
        self.runs = 0
        """Runs of the model since it was attached."""
        self.texts = 0
        """Texts that were scored; with a sample rate below one, of the runs that were sampled."""
        self.alarms = 0
        self.outside = 0
        """Texts outside the calibrated range, which are no alarms."""
        self._listening = Listening(ear, self._finish, wanted=self._wanted, reuse=True)

    @property
    def recent(self) -> tuple[Score, ...]:
        """The last scores, the newest at the end."""
        with self._lock:
            held = tuple(self._recent)
        return tuple(judgement.score(b) for judgement, b in held)

    @property
    def failed(self) -> int:
        """Runs that could not be scored (`problem` says why the last one could not); the model did not notice."""
        return self._listening.failed

    @property
    def problem(self) -> str:
        """Why the last run that could not be scored could not."""
        return self._listening.problem

    def detach(self) -> None:
        """Stop listening and leave the model as it was."""
        self._listening.stop()

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *error: object) -> None:
        self.detach()

    def _wanted(self) -> bool:
        with self._lock:
            self.runs += 1
            return self._sample_rate >= 1.0 or self._chance.random() < self._sample_rate

    def _finish(self, trace: Trace) -> None:
        with self._lock:
            seed = int(self._ties.integers(2**63))
        told = self._calibration.judge(trace, self._rate, np.random.default_rng(seed))
        with self._lock:
            self._recent.extend((told, b) for b in range(len(told.lengths)))
            self.texts += len(told.lengths)
            self.alarms += int(told.alarm.sum())
            self.outside += int((~told.judged).sum())
        self.stream.extend(told.sums[told.judged])
        if self._on_score is not None:
            for score in told.scores():
                self._on_score(score)

    def __repr__(self) -> str:
        return f"Attachment({self.runs} runs, {self.texts} texts, {self.alarms} alarms, {self.failed} failed)"
