import pytest

from metastable.errors import MissingExtra
from metastable.monitor.conformal import Conformal
from metastable.monitor.drift import Drift
from metastable.monitor.score import ChannelScore, Score
from metastable.monitor.service.metrics import Metrics, span
from metastable.monitor.stream import Stream

pytest.importorskip("prometheus_client")


def test_scores_are_counted() -> None:
    metrics = Metrics(("typ", "lex"))
    channels = {"typ": ChannelScore(1.0, 0.5, 0.7, 2), "lex": ChannelScore(3.0, 0.001, 7.0, -1)}
    metrics.score(Score("in range", 0.001, True, 7.7, 12, "lex", -1, channels))
    metrics.score(Score("in range", 0.4, False, 2.0, 12, "typ", 2, channels))
    metrics.score(Score.unjudged("no tokens", 0))
    metrics.stream(Stream(Conformal.of([1.0, 2.0, 3.0]), 0.01, 0))
    metrics.drift(Drift(2, 2, 0.0, 1.0, 0.25, False, 0, "typ"))
    metrics.request(0.02)
    metrics.refused(413)
    content, kind = metrics.text()
    lines = content.decode().splitlines()
    assert kind.startswith("text/plain")
    for line in (
        'metastable_texts_total{status="in range"} 2.0',
        'metastable_texts_total{status="no tokens"} 1.0',
        'metastable_alarms_total{channel="lex"} 1.0',
        'metastable_alarms_total{channel="typ"} 0.0',
        'metastable_p_bucket{le="0.001"} 1.0',
        'metastable_surprise_total{channel="lex"} 14.0',
        "metastable_stream_log_wealth 0.0",
        "metastable_drift_p 0.25",
        'metastable_refused_total{code="413"} 1.0',
        "metastable_seconds_count 1.0",
    ):
        assert line in lines


def test_two_monitors_in_a_process_do_not_share_counters() -> None:
    one, other = Metrics(("a",)), Metrics(("a",))
    one.request(1.0)
    assert b"metastable_seconds_count 1.0" not in other.text()[0]


def test_the_extra_is_named_where_it_is_missing(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prometheus_client", None)
    with pytest.raises(MissingExtra, match=r"metastable\[metrics\]"):
        Metrics(("a",))


def test_spans_carry_attributes() -> None:
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    from opentelemetry import trace

    provider, kept = sdk.TracerProvider(), memory.InMemorySpanExporter()
    provider.add_span_processor(export.SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    with span("metastable.embed", texts=3) as current:
        current.set_attribute("metastable.alarms", 1)
    (found,) = kept.get_finished_spans()
    assert found.name == "metastable.embed"
    assert dict(found.attributes) == {"metastable.texts": 3, "metastable.alarms": 1}


def test_without_opentelemetry_a_span_is_nothing(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry", None)
    with span("metastable.embed", texts=3) as current:
        assert current is None
