"""`write_report`: one self-contained HTML page from verdicts, and the same figures as PNG and PDF."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from plotly.offline import get_plotlyjs

from metastable._version import __version__
from metastable.papers.claim import FAILS, HOLDS, INCONCLUSIVE, Verdict
from metastable.papers.drawing import Lines, PhaseMap, Portrait
from metastable.papers.run import PAPERS
from metastable.report import figures, interactive
from metastable.weights import AttentionWeights

MARKS = {HOLDS: "✓", FAILS: "✗", INCONCLUSIVE: "?"}
RELATIONS = {"equal": "", "at most": "≤ ", "at least": "≥ "}


@dataclass(frozen=True)
class Item:
    """One card of the page: a verdict, a plot, or both."""

    verdict: Verdict | None
    plot: str
    label: str


@dataclass(frozen=True)
class Section:
    """Cards under one heading."""

    anchor: str
    title: str
    note: str
    items: tuple[Item, ...]


def write_report(
    verdicts: Sequence[Verdict],
    out: str | os.PathLike[str],
    *,
    paper: str = "concentration",
    quick: bool = False,
    seed: int = 0,
    prints: bool = True,
) -> FilePath:
    """Write out/report.html and, with `prints`, out/figures/<claim>.png and .pdf; returns the page's path.

    The page holds everything, plotly.js included (from plotly's own package), and opens from the file system.
    """
    folder = FilePath(out)
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / "report.html"
    temporary = page.with_suffix(f".{os.getpid()}.part")
    temporary.write_text(render(verdicts, paper=paper, quick=quick, seed=seed), encoding="utf-8")
    os.replace(temporary, page)
    if prints:
        for verdict in verdicts:
            if verdict.figure is not None:
                figures.draw(verdict.figure, folder / "figures" / verdict.claim)
            if isinstance(verdict.figure, Portrait):
                figures.spectra(_weights(verdict.figure), folder / "figures" / "spectra")
    return page


def render(verdicts: Sequence[Verdict], *, paper: str = "concentration", quick: bool = False, seed: int = 0) -> str:
    """The page as a string."""
    environment = Environment(
        loader=PackageLoader("metastable.report"),
        autoescape=select_autoescape(["html", "j2"]),
        undefined=StrictUndefined,
    )
    environment.globals.update(number=_number, mark=_mark, relation=_relation)
    counted = [(name, sum(v.verdict == name for v in verdicts)) for name in (HOLDS, FAILS, INCONCLUSIVE)]
    return environment.get_template("report.html.j2").render(
        title=f"metastable verify {paper}",
        paper=PAPERS[paper],
        mode="Quick" if quick else "Full",
        seed=seed,
        version=__version__,
        counts=counted,
        verdicts=verdicts,
        sections=_sections(verdicts),
        plotly_js=get_plotlyjs(),
    )


def _sections(verdicts: Sequence[Verdict]) -> list[Section]:
    """The phase portrait, the curves and the phase diagram first; then the other claims by theme."""
    sections = []
    leading: tuple[tuple[type, str, str, str], ...] = (
        (Portrait, "portrait", "Phase portrait", "Drag to turn, scroll to zoom, move the slider or press Play."),
        (
            PhaseMap,
            "phases",
            "Phase diagram",
            "Which of the three laws is nearest, by time and inverse temperature.",
        ),
    )
    shown: set[str] = set()
    for kind, anchor, title, note in leading:
        chosen = [v for v in verdicts if isinstance(v.figure, kind)]
        items = [_item(v) for v in chosen]
        if kind is Portrait:
            items += [
                Item(None, _html(interactive.spectra(_weights(v.figure))), "Spectra of M and of V")
                for v in chosen[:1]
                if isinstance(v.figure, Portrait)
            ]
        if items:
            sections.append(Section(anchor, title, note, tuple(items)))
            shown |= {v.claim for v in chosen}
    themes = list(dict.fromkeys(v.theme for v in verdicts))
    for index, theme in enumerate(themes):
        items = [_item(v) for v in verdicts if v.theme == theme and v.claim not in shown]
        if items:
            sections.append(Section(f"theme-{index}", theme or "Claims", "", tuple(items)))
    return sections


def _item(verdict: Verdict) -> Item:
    if verdict.figure is None:
        return Item(verdict, "", "")
    label = verdict.figure.title
    if isinstance(verdict.figure, Lines):
        label = f"{label}: {verdict.figure.y_label} against {verdict.figure.x_label}"
    return Item(verdict, _html(interactive.figure(verdict.figure)), label)


def _html(figure: Any) -> str:
    config = {"displaylogo": False, "responsive": True}
    return str(figure.to_html(full_html=False, include_plotlyjs=False, config=config, auto_play=False))


def _weights(drawing: Portrait) -> AttentionWeights:
    return AttentionWeights(V=drawing.V, B=drawing.B)


def _mark(verdict: Verdict) -> str:
    return MARKS[verdict.verdict]


def _relation(verdict: Verdict) -> str:
    return RELATIONS[verdict.relation]


def _number(value: Any, digits: int = 4) -> str:
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, int | np.integer):
        return str(int(value))
    number = float(value)
    if not math.isfinite(number):
        return "–"
    return f"{number:.{digits}g}".replace("-", "−")
