"""`Service`: a monitor with its stream, its latest scores, its metrics and its log; many threads may ask it."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from metastable.arguments import instance, integer
from metastable.errors import InvalidInput, MissingExtra
from metastable.monitor.drift import Drift
from metastable.monitor.marked import segments
from metastable.monitor.monitor import Monitor
from metastable.monitor.score import Score
from metastable.monitor.service.journal import Journal
from metastable.monitor.service.metrics import Metrics, span

KEPT = 500
"""Scores that the live page can look back at."""
WAITING = 32
"""Requests that may wait for the model; more are turned away at once."""


class Service:
    """Embeds and scores texts, and remembers a bounded number of scores."""

    def __init__(
        self, monitor: Monitor, *, rate: float | None = None, journal: Journal | None = None, keep: int = KEPT
    ) -> None:
        self.monitor = instance(monitor, "monitor", Monitor, "a Monitor")
        if monitor.encoder is None:
            raise InvalidInput("a service embeds texts: load its monitor with Monitor.load(path, encoder)")
        self.rate = monitor.nominal(rate)
        self.journal = journal
        self.stream = monitor.stream(rate=self.rate)
        self.recent: deque[dict[str, Any]] = deque(maxlen=integer(keep, "keep", least=1, most=100_000))
        self.seats = threading.BoundedSemaphore(WAITING)
        self.started = time.time()
        self._lock = threading.Lock()
        self._count = 0
        try:
            self.metrics: Metrics | None = Metrics(monitor.channels)
        except MissingExtra:
            self.metrics = None

    def embed(self, texts: Sequence[Any], rate: float | None = None) -> tuple[np.ndarray, list[Score]]:
        """Embeddings and scores of texts, which are then remembered."""
        began = time.perf_counter()
        with span("metastable.embed", texts=len(texts), model=str(self.monitor.about["name"])) as current:
            rows, scores = self.monitor.embed(list(texts), rate=self.rate if rate is None else rate)
            alarms = sum(score.alarm for score in scores)
            if current is not None:
                current.set_attribute("metastable.alarms", alarms)
                current.set_attribute("metastable.p", min((score.p for score in scores), default=1.0))
        for text, score in zip(texts, scores, strict=True):
            self._remember(text, score)
        if self.metrics is not None:
            self.metrics.stream(self.stream)
            self.metrics.request(time.perf_counter() - began)
        return rows, scores

    def drift(self, texts: Sequence[Any], documents: Sequence[Any] | None, rate: float | None) -> Drift:
        """Score a batch and test it for drift."""
        _, scores = self.embed(texts)
        found = self.monitor.drift(scores, documents=documents, rate=self.rate if rate is None else rate)
        if self.metrics is not None:
            self.metrics.drift(found)
        return found

    def health(self) -> dict[str, Any]:
        """Which calibration this is, and what was seen so far."""
        made = self.monitor.calibration
        return {
            "model": self.monitor.about["name"],
            "weights": self.monitor.identity.weights,
            "dtype": self.monitor.identity.dtype,
            "rate": self.rate,
            "channels": list(self.monitor.channels),
            "shortest": made.shortest,
            "longest": made.longest,
            "layers": self.monitor.about["layers"],
            "seconds": round(time.time() - self.started, 1),
            "stream": self.evidence(),
        }

    def evidence(self) -> dict[str, Any]:
        """Where the stream stands."""
        return {"seen": self.stream.seen, "log_wealth": self.stream.log_wealth, "alarm": self.stream.alarm}

    def since(self, number: int) -> dict[str, Any]:
        """Scores after this number, for the live page."""
        with self._lock:
            entries = [entry for entry in self.recent if entry["number"] > number]
        return {"entries": entries, "last": self._count, "stream": self.evidence(), "rate": self.rate}

    def _remember(self, text: Any, score: Score) -> None:
        if score.in_range:
            self.stream.add(score.surprise)
        plain = score.to_dict()
        assert self.monitor.encoder is not None
        shown = segments(self.monitor.encoder.inputs, text, score.marks) if score.alarm else []
        with self._lock:
            self._count += 1
            self.recent.append({"number": self._count, "time": time.time(), "segments": shown, **plain})
        if self.metrics is not None:
            self.metrics.score(score)
        if self.journal is not None:
            self.journal.write({"model": self.monitor.about["name"], **plain})
