"""`write_report`: one self-contained HTML page from verdicts, and the same figures as PNG and PDF."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path as FilePath

from metastable._version import __version__
from metastable.arguments import choice, flag, integer, place, sequence, shown
from metastable.drawing import Figure, PhaseMap, Portrait
from metastable.errors import InvalidInput
from metastable.papers.claim import Setting
from metastable.papers.paper import ALL, PAPERS, Paper
from metastable.papers.processes import in_processes
from metastable.papers.verdict import FAILS, HOLDS, INCONCLUSIVE, OPEN, Verdict, passed

MARKS = {HOLDS: "✓", FAILS: "✗", INCONCLUSIVE: "?", OPEN: "…"}
LEADING: tuple[tuple[type, str, str, str], ...] = (
    (Portrait, "portrait", "Phase portrait", "Drag to turn, scroll to zoom, move the slider or press Play."),
    (PhaseMap, "phases", "Phase diagram", "Concentrated, terminal or neither, by time and inverse temperature."),
)
"""Kinds of figures that open the page: anchor, title and note of their sections."""


@dataclass(frozen=True)
class Item:
    """One card of the page: a verdict, a plot, or both."""

    verdict: Verdict | None
    plot: str = ""
    label: str = ""


@dataclass(frozen=True)
class Section:
    """Cards under one heading."""

    anchor: str
    title: str
    note: str
    items: tuple[Item, ...]


@dataclass(frozen=True)
class Group:
    """The verdicts on statements of one origin: those of the paper, or metastable's own estimates."""

    anchor: str
    short: str
    title: str
    note: str
    verdicts: tuple[Verdict, ...]

    @property
    def count(self) -> str:
        """How many of the claims hold, in words."""
        total, holding = len(self.verdicts), sum(v.holds for v in self.verdicts)
        undecided = sum(v.standing == OPEN for v in self.verdicts)
        return f"{holding} of {total} hold{'s' if total == 1 else ''}" + (
            f", {undecided} open" if undecided else ""
        )

    @property
    def sections(self) -> list[Section]:
        """Its cards: the phase portrait and the phase diagram first, then the other claims by theme."""
        return sections(self.verdicts, self.anchor)


def groups(verdicts: Sequence[Verdict], paper: str = "concentration") -> list[Group]:
    """The paper's statements first, under its title; metastable's own estimates apart."""
    title = PAPERS[paper].title
    kinds = (
        (
            False,
            "paper",
            "The paper",
            f"The paper: {title}",
            "Statements of the paper itself, or of the successor that a claim names as its source.",
        ),
        (True, "ours", "Estimates", "metastable's own estimates", "Sharper than the paper, and not claimed by it."),
    )
    found = [
        Group(anchor, short, heading, note, tuple(v for v in verdicts if v.ours is ours))
        for ours, anchor, short, heading, note in kinds
    ]
    return [group for group in found if group.verdicts]


def write_report(
    verdicts: Sequence[Verdict],
    out: str | os.PathLike[str],
    *,
    paper: str = "concentration",
    quick: bool = False,
    seed: int = 0,
    prints: bool | None = None,
    jobs: int = 1,
) -> FilePath:
    """Write out/report.html and, with `prints`, out/figures/<claim>.png, of a full run .pdf, too; the page's path.

    prints: None prints all but a quick run of all papers, whose pages are enough to look at. jobs: processes that
    write and draw. The page holds everything, plotly.js included (from plotly's own package), and opens
    from the file system. For "all" every paper has its page and figures in out/<paper>, and out/report.html leads
    to them.
    """
    from metastable.drawing import draw

    folder = FilePath(place(out, "out"))
    if prints is not None:
        flag(prints, "prints")
    integer(jobs, "jobs", least=1)
    pages: dict[FilePath, tuple[str, Sequence[Verdict]]] = {
        folder: (paper, sequence(verdicts, "verdicts", Verdict, "verdicts"))
    }
    if choice(paper, "paper", (*PAPERS, ALL)) == ALL:
        pages |= {folder / one.name: (one.name, found) for one, found in by_paper(verdicts)}
    wanted = not (quick and paper == ALL) if prints is None else prints
    parts = [_printed(found, at, quick) for at, (name, found) in pages.items() if wanted and name != ALL]
    drawing = in_processes(draw, [call for part in parts for call in part], jobs)
    writing = in_processes(_write, [(found, at, name, quick, seed) for at, (name, found) in pages.items()], jobs)
    for _ in chain(writing, drawing):
        pass
    return folder / "report.html"


def _write(verdicts: Sequence[Verdict], folder: FilePath, paper: str, quick: bool, seed: int) -> None:
    """One page."""
    from metastable.drawing.shell import save_page

    save_page(render(verdicts, paper=paper, quick=quick, seed=seed), folder / "report.html")


def _printed(verdicts: Sequence[Verdict], folder: FilePath, quick: bool) -> list[tuple[Figure, FilePath]]:
    """The figures of a paper and the files that they go into, without suffix for those of a full run."""
    drawn = {v.claim: v.figure for v in verdicts if v.figure is not None}
    portrait = next((figure for figure in drawn.values() if isinstance(figure, Portrait)), None)
    if portrait is not None and portrait.spectra is not None:
        drawn["spectra"] = portrait.spectra
    suffix = ".png" if quick else ""
    return [(figure, folder / "figures" / f"{name}{suffix}") for name, figure in drawn.items()]


def render(verdicts: Sequence[Verdict], *, paper: str = "concentration", quick: bool = False, seed: int = 0) -> str:
    """The page as a string; for "all" it is the one that leads to those of the papers."""
    found = sequence(verdicts, "verdicts", Verdict, "verdicts")
    choice(paper, "paper", (*PAPERS, ALL))
    Setting(quick=quick, seed=seed)
    from metastable.drawing.shell import compose

    common = {
        "title": f"metastable verify {paper}",
        "mode": "Quick" if quick else "Full",
        "seed": seed,
        "version": __version__,
        "passed": passed(found),
        "counts": counts(found),
        "marks": MARKS,
    }
    if paper == ALL:
        rows = [Row(one, tuple(part), counts(part), passed(part)) for one, part in by_paper(found)]
        return compose("metastable.papers", "papers.html.j2", rows=rows, **common)
    from plotly.offline import get_plotlyjs

    return compose(
        "metastable.papers",
        "claims.html.j2",
        paper=PAPERS[paper],
        groups=groups(found, paper),
        plotly_js=get_plotlyjs(),
        **common,
    )


@dataclass(frozen=True)
class Row:
    """One paper in the table of all: its verdicts, how many stand how, and whether they pass."""

    paper: Paper
    verdicts: tuple[Verdict, ...]
    counts: list[tuple[str, int]]
    passed: bool


def counts(verdicts: Sequence[Verdict]) -> list[tuple[str, int]]:
    """How many claims hold, fail, are inconclusive and open."""
    return [(name, sum(v.standing == name for v in verdicts)) for name in MARKS]


def by_paper(verdicts: Sequence[Verdict]) -> list[tuple[Paper, list[Verdict]]]:
    """The verdicts of every paper that has one of them; a claim is found by its name."""
    owners = {claim.name: paper for paper in PAPERS.values() for claim in paper.claims}
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.claim not in owners:
            raise InvalidInput(f"claim {shown(verdict.claim)} belongs to no paper")
        found.setdefault(owners[verdict.claim].name, []).append(verdict)
    return [(paper, found[name]) for name, paper in PAPERS.items() if name in found]


def sections(verdicts: Sequence[Verdict], prefix: str) -> list[Section]:
    """The phase portrait and the phase diagram first; then the other claims by theme; anchors begin with prefix."""
    result = []
    shown: set[str] = set()
    for kind, anchor, title, note in LEADING:
        chosen = [v for v in verdicts if isinstance(v.figure, kind)]
        items = [_item(v) for v in chosen]
        if chosen and isinstance(chosen[0].figure, Portrait) and chosen[0].figure.spectra is not None:
            items.append(_item(None, chosen[0].figure.spectra))
        if items:
            result.append(Section(f"{prefix}-{anchor}", title, note, tuple(items)))
            shown |= {v.claim for v in chosen}
    for index, theme in enumerate(dict.fromkeys(v.theme for v in verdicts)):
        items = [_item(v) for v in verdicts if v.theme == theme and v.claim not in shown]
        if items:
            result.append(Section(f"{prefix}-theme-{index}", theme or "Claims", "", tuple(items)))
    return result


def _item(verdict: Verdict | None, figure: Figure | None = None) -> Item:
    from metastable.drawing.figures import caption
    from metastable.drawing.plotted import plot_html

    drawn = verdict.figure if verdict is not None else figure
    return Item(verdict) if drawn is None else Item(verdict, plot_html(drawn), caption(drawn))
