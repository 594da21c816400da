"""`report`: texts judged one after the other, as a page with timelines, channels and marked texts."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from metastable.arguments import OneLine, instance, place
from metastable.drawing import Lines, Series, svg
from metastable.drawing.inline import legend
from metastable.drawing.shell import compose, save_page
from metastable.drawing.tokens import evenly
from metastable.monitor.drift import Drift
from metastable.monitor.marked import segments
from metastable.monitor.monitor import Monitor
from metastable.monitor.score import Score

SCHEMA = "metastable/monitor-report/1"
SHOWN = 50
"""Alarms that the page shows with their text, the most surprising first; the numbers hold all."""
DOTS = 1500
"""Most texts that are drawn; of more, an even selection and all alarms."""
CLOSE = 8.0
"""Where an axis ends there or above, one nat stands too close to zero to be written beside it."""
BLOCKS = 60
"""Most points of a channel's timeline: means over stretches of the texts."""


@dataclass(frozen=True, eq=False, repr=False)
class MonitorReport(OneLine):
    """Scores of texts in their order, the test for drift of all of them, the evidence of the stream after each."""

    about: dict[str, Any]
    rate: float
    scores: list[Score] = field(repr=False)
    drift: Drift
    wealth: list[float] = field(repr=False)
    texts: list[list[tuple[str, float]]] = field(repr=False)
    """Of every alarm the text in pieces with the share of each."""

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries, lists, numbers and strings; texts are not among them."""
        return {
            "schema": SCHEMA,
            "about": self.about,
            "rate": self.rate,
            "drift": asdict(self.drift),
            "scores": [score.to_dict() for score in self.scores],
            "stream": self.wealth,
        }

    def to_html(self) -> str:
        """The report as one offline page."""
        alarms = [i for i, score in enumerate(self.scores) if score.alarm]
        shown = sorted(alarms, key=lambda i: -self.scores[i].surprise)[:SHOWN]
        by_number = dict(zip(alarms, self.texts, strict=True))
        timeline = _timeline(self)
        return compose(
            "metastable.monitor",
            "report.html.j2",
            r=self,
            judged=sum(score.in_range for score in self.scores),
            alarms=len(alarms),
            timeline=svg(timeline, width=980, height=240, heading=False, label=timeline.title),
            legend=legend(timeline),
            wealth=svg(_wealth(self), width=980, height=170, heading=False, label="evidence that traffic changed"),
            channels=[svg(figure, width=312, height=150) for figure in _channels(self)],
            shown=[(i, self.scores[i], by_number[i]) for i in shown],
        )

    def save(self, path: str | Path) -> Path:
        """Write the page, and its numbers as JSON beside it (same name, `.json`); a `.json` path: only those."""
        target = place(path, "path")
        page = None if Path(target).suffix == ".json" else self.to_html()
        return save_page(page, target, self.to_dict())


def report(
    monitor: Monitor,
    texts: Any,
    *,
    documents: Sequence[Hashable] | None = None,
    rate: float | None = None,
) -> MonitorReport:
    """Judge texts in their order and report; documents: as for `Monitor.drift`."""
    instance(monitor, "monitor", Monitor, "a Monitor")
    level = monitor.nominal(rate)
    scores = monitor.score(texts, rate=level)
    given = [texts] if isinstance(texts, str) else list(texts)
    stream = monitor.stream(rate=level)
    wealth = [stream.add(score.surprise) if score.in_range else stream.log_wealth for score in scores]
    assert monitor.encoder is not None
    inputs = monitor.encoder.inputs
    marked = [segments(inputs, text, s.marks) for text, s in zip(given, scores, strict=True) if s.alarm]
    about = monitor.about | {"shortest": monitor.calibration.shortest, "longest": monitor.calibration.longest}
    about |= {"texts": monitor.calibration.texts, "documents": monitor.calibration.documents}
    about |= {"weights": monitor.identity.weights, "dtype": monitor.identity.dtype}
    return MonitorReport(
        about, level, scores, monitor.drift(scores, documents=documents, rate=level), wealth, marked
    )


def _timeline(r: MonitorReport) -> Lines:
    """Sum of surprises of every text; p ends at 1/(m + 1), the sum does not."""
    judged = [i for i, score in enumerate(r.scores) if score.in_range]
    quiet = [i for i in judged if not r.scores[i].alarm]
    quiet = [quiet[k] for k in evenly(len(quiet), DOTS)] if quiet else []
    loud = [i for i in judged if r.scores[i].alarm]
    series = [
        Series(quiet, [_height(r.scores[i]) for i in quiet], "as calibrated", "points", colour=0),
        Series(loud, [_height(r.scores[i]) for i in loud], "alarm", "points", colour=6),
    ]
    top = max((_height(r.scores[i]) for i in judged), default=1.0)
    ticks = {
        math.log10(1 + v): f"{v:g}" for v in (0, 3, 10, 30, 100, 300, 1000, 10_000) if math.log10(1 + v) <= top
    }
    title = "Surprise of every text, in nats"
    return Lines(title, "text", "surprise", series, x_ticks=_numbers(len(r.scores)), y_ticks=ticks)


def _height(score: Score) -> float:
    return math.log10(1 + score.surprise)


def _wealth(r: MonitorReport) -> Lines:
    keep = evenly(len(r.wealth), DOTS) if r.wealth else np.zeros(0, dtype=int)
    level = -math.log(r.rate)
    places = [int(i) for i in keep]
    series = [Series(places, [r.wealth[i] for i in places], "evidence", colour=0)]
    if places:
        series.append(Series([places[0], places[-1]], [level, level], "alarm", "dashed", colour=6))
    top = max([*r.wealth, level])
    ticks = {v: f"{v:.3g}" for v in sorted({min([*r.wealth, 0.0]), level, top})}
    return Lines("Evidence", "text", "log wealth", series, x_ticks=_numbers(len(r.scores)), y_ticks=ticks)


def _channels(r: MonitorReport) -> list[Lines]:
    """Mean surprise of every channel over stretches of the texts; one nat is what is expected."""
    judged = [(i, score) for i, score in enumerate(r.scores) if score.in_range]
    if not judged:
        return []
    found = []
    parts = np.array_split(np.arange(len(judged)), min(BLOCKS, len(judged)))
    for name in judged[0][1].channels:
        x = [float(np.mean([judged[k][0] for k in part])) for part in parts]
        y = [float(np.mean([judged[k][1].channels[name].surprise for k in part])) for part in parts]
        series = [Series(x, y, "", colour=0), Series([x[0], x[-1]], [1.0, 1.0], "", "dotted", colour=7)]
        top = max(*y, 1.0)
        ticks = {v: f"{v:.3g}" for v in sorted({0.0, top} | ({1.0} if top < CLOSE else set()))}
        found.append(Lines(name, "text", "", series, x_ticks=_numbers(len(r.scores)), y_ticks=ticks))
    return found


def _numbers(count: int) -> dict[float, str]:
    return {float(i): str(i) for i in sorted({0, (count - 1) // 2, max(count - 1, 0)})}
