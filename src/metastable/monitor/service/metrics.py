"""Prometheus metrics and OpenTelemetry spans of a monitor; both packages are the extra `metrics`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from metastable.errors import MissingExtra
from metastable.monitor.drift import Drift
from metastable.monitor.score import Score
from metastable.monitor.stream import Stream

LEVELS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Upper ends of the buckets of p-values."""
SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Metrics:
    """Counters of one monitor in a registry of their own."""

    def __init__(self, channels: tuple[str, ...]) -> None:
        try:
            import prometheus_client as client
        except ImportError as error:
            raise MissingExtra.of("prometheus-client", "metrics") from error
        self._client = client
        self.registry = client.CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        self._texts = client.Counter("metastable_texts", "Texts by status.", ["status"], **own)
        self._alarms = client.Counter(
            "metastable_alarms", "Alarms by the most surprised channel.", ["channel"], **own
        )
        self._p = client.Histogram("metastable_p", "p-values of texts in range.", buckets=LEVELS, **own)
        self._surprise = client.Counter("metastable_surprise", "Sum of surprises.", ["channel"], **own)
        self._seconds = client.Histogram("metastable_seconds", "Seconds of a request.", buckets=SECONDS, **own)
        self._refused = client.Counter("metastable_refused", "Requests that were refused.", ["code"], **own)
        self._wealth = client.Gauge("metastable_stream_log_wealth", "Evidence of change, in nats.", **own)
        self._drift = client.Gauge("metastable_drift_p", "p-value of the last test for drift.", **own)
        for channel in channels:
            self._alarms.labels(channel)

    def score(self, score: Score) -> None:
        """Count one score."""
        self._texts.labels(score.status).inc()
        if score.in_range:
            self._p.observe(score.p)
            for name, channel in score.channels.items():
                self._surprise.labels(name).inc(channel.surprise)
        if score.alarm:
            self._alarms.labels(score.channel).inc()

    def stream(self, stream: Stream) -> None:
        """The evidence of the stream."""
        self._wealth.set(stream.log_wealth)

    def drift(self, drift: Drift) -> None:
        """The last test for drift."""
        self._drift.set(drift.p)

    def request(self, seconds: float) -> None:
        """The time of one request."""
        self._seconds.observe(seconds)

    def refused(self, code: int) -> None:
        """A request that was refused."""
        self._refused.labels(str(code)).inc()

    def text(self) -> tuple[bytes, str]:
        """All metrics as Prometheus reads them, and the type of that text."""
        return self._client.generate_latest(self.registry), self._client.CONTENT_TYPE_LATEST


@contextmanager
def span(name: str, **attributes: Any) -> Iterator[Any]:
    """An OpenTelemetry span, by whatever provider the process has; nothing where the package is not there."""
    try:
        from opentelemetry import trace
    except ImportError:
        with nullcontext() as nothing:
            yield nothing
        return
    with trace.get_tracer("metastable.monitor").start_as_current_span(name) as current:
        for key, value in attributes.items():
            current.set_attribute(f"metastable.{key}", value)
        yield current
