"""A series of audits: checkpoints or fine-tunes of one architecture, and what moved between them."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterable, Sequence, Sized
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from metastable.arguments import OneLine, shown
from metastable.arguments import names as read_names
from metastable.audit.report import AuditReport, audit
from metastable.drawing.shell import save_page
from metastable.encoders import Encoder, load
from metastable.errors import InvalidInput

SCHEMA = "metastable/audit-series/1"
MOVED = 0.1
"""Relative change from which a number is told as moved: a rule of thumb."""
FORECASTS = {"gaussian": "Gaussian", "zero_temperature": "zero-temperature", "argmax": "argmax"}


@dataclass(frozen=True, eq=False, repr=False)
class AuditSeries(OneLine):
    """Reports of several models in the order given, and their numbers side by side."""

    names: list[str]
    reports: list[AuditReport] = field(repr=False)

    def table(self) -> dict[str, list[float | None]]:
        """Quantities that can be followed along the series, one value per model."""
        layers, heads = len(self.reports[0].weights.layers), len(self.reports[0].weights.heads)
        rows: dict[str, Callable[[AuditReport], float | None]] = {
            "kappa of the weights (median head)": lambda r: statistics.median(h.kappa for h in r.weights.heads),
            "Re lambda(sum A), largest layer": lambda r: max(l.top_sum_values.real for l in r.weights.layers),
            "Re lambda(M0), largest layer": lambda r: max(l.top_sum_products.real for l in r.weights.layers),
            "largest ratio Re lambda(M0)/Re lambda(sum A)": lambda r: max(l.ratio for l in r.weights.layers),
            "asymmetry of M_h (median head)": lambda r: statistics.median(h.asymmetry for h in r.weights.heads),
            f"heads with a complex dominant pair (of {heads})": lambda r: float(
                sum(h.product_is_complex for h in r.weights.heads)
            ),
            "stable rank of sum A (mean layer)": lambda r: statistics.mean(l.stable_rank for l in r.weights.layers),
            f"heads whose values match their scores (of {heads})": lambda r: float(
                sum(h.trace_rank >= 1 for h in r.weights.heads)
            ),
            f"looped layers that end in sum A from most starts (of {layers})": lambda r: float(
                sum(p.terminal_holds is True for p in r.loops)
            ),
            f"looped layers with an early phase from most starts (of {layers})": lambda r: float(
                sum(p.early is True for p in r.loops)
            ),
            f"early-phase forecasts that are right (of {layers})": lambda r: float(
                sum(p.early_holds is True for p in r.loops)
            ),
        }
        if all(r.text is not None for r in self.reports):
            rows |= {
                "kappa on text (median layer)": lambda r: statistics.median(l.kappa for l in _text(r).layers),
                "kappa/(d_eff - 1) (median layer)": lambda r: statistics.median(
                    l.kappa_over_dimension for l in _text(r).layers
                ),
                "attention entropy (mean layer)": lambda r: statistics.mean(l.entropy for l in _text(r).layers),
                "mean cosine of tokens, output": lambda r: _text(r).depth[-1].mean_cosine,
            }
            for name, title in FORECASTS.items():
                rows[f"{title} forecast (mean cosine)"] = partial(_step, name=name)
                rows[f"control of the {title} forecast (other heads' scores)"] = partial(_control, name=name)
        return {name: [_finite(value(r)) for r in self.reports] for name, value in rows.items()}

    def sentences(self) -> list[str]:
        """The rows that moved most, first to last, in words."""
        moved = []
        table = self.table()
        for name, values in table.items():
            known = [v for v in values if v is not None]
            if len(known) < 2 or name.startswith("control of"):
                continue
            size = (max(known) - min(known)) / _scale(name, max(known), min(known))
            beside = table.get(f"control of the {name.split(' forecast')[0]} forecast (other heads' scores)")
            told = ""
            if beside is not None and beside[0] is not None and beside[-1] is not None:
                told = f"; its control, with other heads' scores, went from {beside[0]:.3g} to {beside[-1]:.3g}"
            if size >= MOVED:
                moved.append((size, f"{name} {self._way(name, values)}{told}."))
        moved.sort(key=lambda pair: -pair[0])
        if not moved:
            return [f"Nothing moved by as much as {MOVED:.0%} along the series."]
        return [sentence[0].upper() + sentence[1:] for _, sentence in moved]

    def _way(self, name: str, values: Sequence[float | None]) -> str:
        """From the first model to the last, by way of what lies beyond both in between."""
        known = [(title, v) for title, v in zip(self.names, values, strict=True) if v is not None]
        ends = (known[0][1], known[-1][1])
        scale = _scale(name, *(pick(v for _, v in known) for pick in (max, min)))
        beyond = {
            max(range(len(known)), key=lambda i: known[i][1] - max(ends)),
            max(range(len(known)), key=lambda i: min(ends) - known[i][1]),
        }
        far = {i for i in beyond if max(known[i][1] - max(ends), min(ends) - known[i][1]) >= MOVED * scale}
        said, before = "", ends[0]
        for i in sorted({*far, len(known) - 1}):
            title, value = known[i]
            word = "rose" if value > before else "fell"
            start = f"{word} from {before:.3g}" if not said else f", then {word}"
            said += f"{start} to {value:.3g}" + f" ({title})" * (len(known) > 2)
            before = value
        return said

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the table, and every report in full."""
        reports = [r.to_dict() for r in self.reports]
        return {"schema": SCHEMA, "names": self.names, "table": self.table(), "reports": reports}

    def to_html(self) -> str:
        """The series as one offline page."""
        from metastable.audit.page import series_page

        return series_page(self.names, self.sentences(), self.table(), self.reports)

    def save(self, path: str | Path) -> Path:
        """Write the page and its JSON beside it; a `.json` path: only that."""
        page = None if Path(path).suffix == ".json" else self.to_html()
        return save_page(page, path, self.to_dict())


def audit_series(
    encoders: Iterable[Any],
    texts: Any = None,
    *,
    names: Sequence[str] | None = None,
    report: Callable[[str], None] | None = None,
    **options: Any,
) -> AuditSeries:
    """Audit models of one architecture in order: how spectra, kappa, forecasts and phases move along training.

    encoders: `Encoder`s or whatever `load` opens, one after the other; from an iterator only one is held at a time.
    """
    try:
        if isinstance(encoders, str | bytes):
            raise TypeError
        models = iter(encoders)
        given = len(encoders) if isinstance(encoders, Sized) else None
    except Exception:
        raise InvalidInput(f"encoders must be a sequence of models, got {shown(encoders)}") from None
    if names is not None:
        names = read_names(names, "names")
    if given is not None and given < 2:
        raise InvalidInput(f"a series needs at least two models, got {given}")
    reports: list[AuditReport] = []
    titles: list[str] = []
    shape: tuple[Any, ...] | None = None
    for i, source in enumerate(models):
        encoder = source if isinstance(source, Encoder) else load(source)
        own = (encoder.family, len(encoder.layers), len(encoder.layers[0].heads), encoder.d)
        if shape is not None and own != shape:
            raise InvalidInput(f"a series needs one architecture, got {shape} and {own} (family, layers, heads, d)")
        shape = own
        if names is not None and i >= len(names):
            raise InvalidInput(f"names must hold one name for every model, got {len(names)}")
        title = names[i] if names else encoder.name
        titles.append(title)
        tell = None if report is None else (lambda line, title=title: report(f"{title}: {line}"))
        reports.append(audit(encoder, texts, report=tell, **options))
    if len(reports) < 2:
        raise InvalidInput(f"a series needs at least two models, got {len(reports)}")
    return AuditSeries(titles, reports)


def _scale(name: str, first: float, last: float) -> float:
    """What a change is measured by: the number of heads or layers for a count, the larger value for the rest."""
    counted = re.search(r"\(of (\d+)\)$", name)
    return float(counted.group(1)) if counted else max(abs(first), abs(last), 1e-12)


def _text(report: AuditReport) -> Any:
    return report.text


def _step(report: AuditReport, name: str) -> float:
    return statistics.mean(f.cosine[name] for f in _text(report).forecasts)


def _control(report: AuditReport, name: str) -> float | None:
    found = [f.control[name] for f in _text(report).forecasts if f.control[name] is not None]
    return statistics.mean(found) if found else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
