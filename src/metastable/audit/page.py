"""The pages of an audit and of a series of audits, composed from figures and the page shell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from metastable.audit.heads import LayerAudit, WeightAudit
from metastable.audit.loop import LoopAudit
from metastable.audit.numbers import OF_TEXT, OF_WEIGHTS
from metastable.audit.reference_values import beside, reference_encoders
from metastable.audit.text import TextAudit
from metastable.drawing import Bars, Eigenvalues, Grid, Lines, Series, Spectra, Tracks, Trend, svg
from metastable.drawing.inline import legend
from metastable.drawing.shell import compose

ROOM = "metastable.audit"
TERMINAL, EARLY = 0, 1
"""Places in the palette: sum A, which decides the terminal phase, and M0, which decides the early one."""
FORECAST_COLOURS = {"gaussian": 0, "argmax": 1, "uniform": 2, "zero_temperature": 3}
MEANINGS = {name: meaning for name, (meaning, _) in (OF_WEIGHTS | OF_TEXT).items()}
ZOOMED = 8
"""Eigenvalues by falling real part that the close look at a spectrum holds."""
SHARES = {0.0: "0%", 0.5: "50%", 1.0: "100%"}
QUARTERS = {0.0: "0", 0.25: "0.25", 0.5: "0.5", 0.75: "0.75", 1.0: "1"}


@runtime_checkable
class Audited(Protocol):
    """What a page shows of one audit; an `AuditReport` is that."""

    @property
    def model(self) -> dict[str, Any]:
        """Name, family, sizes and how well its attention was rebuilt."""

    @property
    def findings(self) -> Sequence[Any]:
        """Sentences with their evidence and confidence."""

    @property
    def scorecard(self) -> Sequence[Any]:
        """The theory's assumptions, each with what was measured of it."""

    @property
    def weights(self) -> WeightAudit:
        """What heads and layers say without text."""

    @property
    def text(self) -> TextAudit | None:
        """What the model does with texts; None: none were given."""

    @property
    def loops(self) -> Sequence[LoopAudit]:
        """Every layer iterated alone."""

    @property
    def limits(self) -> Sequence[str]:
        """What the audit does not tell."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions and parameters."""


def report_page(report: Audited) -> str:
    """The page of one audit."""
    return compose(
        ROOM,
        "report.html.j2",
        r=report,
        tables=_tables(report),
        spectra=[
            [svg(figure, label=f"spectra of {figure.title}") for figure in _spectra_of(l)]
            for l in report.weights.layers
        ],
        beside=[(name, MEANINGS.get(name, ""), own, known) for name, own, known in beside(report)],
        known=reference_encoders(),
        maps=[svg(grid) for grid in _maps(report)],
        forecasts=_forecasts(report),
        loops=[
            {
                "loop": loop,
                "curve": svg(_energies(loop), label=f"energy along the loop, layer {loop.layer}"),
                "paths": svg(Tracks(f"trajectories, layer {loop.layer}", loop.trajectories)),
            }
            for loop in report.loops
        ],
    )


def series_page(
    names: Sequence[str],
    sentences: Sequence[str],
    table: Mapping[str, Sequence[float | None]],
    reports: Sequence[Audited],
) -> str:
    """The page of a series: how the numbers move from one model to the next."""
    rows = [
        {"name": name, "values": values, "spark": svg(Trend(values), width=120, height=24)}
        for name, values in table.items()
    ]
    layers = range(len(reports[0].weights.layers))
    lines = [
        svg(
            _eigenvalue_lines([r.weights for r in reports], l),
            width=234,
            height=140,
            label=f"dominant eigenvalues along the series, layer {l}",
        )
        for l in layers
    ]
    loops = [[r.loops[l] for r in reports] for l in layers]
    content = {"names": names, "sentences": sentences, "first": reports[0], "rows": rows, "lines": lines}
    return compose(ROOM, "series.html.j2", **content, loops=loops)


def _tables(report: Audited) -> list[dict[str, Any]]:
    layers = report.weights.layers
    tables = [
        _table(
            "From the weights",
            [
                ("kappa", "median inverse temperature of the heads", [l.kappa for l in layers]),
                ("λ(ΣA)", "dominant eigenvalue of sum A: the terminal phase", [l.top_sum_values for l in layers]),
                ("λ(M0)", "dominant eigenvalue of M0: the early phase", [l.top_sum_products for l in layers]),
                ("ratio", "Re λ(M0) / Re λ(ΣA)", [l.ratio for l in layers]),
                ("gap M0", "distance to the next eigenvalue", [l.gap_products for l in layers]),
                ("asymmetry", "|M0 - M0^T| / 2|M0|", [l.asymmetry for l in layers]),
                ("non-normality", "of M0", [l.nonnormality for l in layers]),
                ("stable rank", "of sum A (not the directions that updates use)", [l.stable_rank for l in layers]),
            ],
        )
    ]
    if report.text is not None:
        seen = report.text.layers
        tables.append(
            _table(
                f"On the {report.text.item}s",
                [
                    ("kappa", "median of |B^T s + g|", [l.kappa for l in seen]),
                    ("d_eff", "directions that the tokens fill", [l.d_eff for l in seen]),
                    ("kappa/(d_eff-1)", "above 3: cold", [l.kappa_over_dimension for l in seen]),
                    ("entropy", "of attention / log n", [l.entropy for l in seen]),
                    ("sink", "largest share of one token", [l.sink for l in seen]),
                    ("mean cosine", f"of hidden states of one {report.text.item}", [l.mean_cosine for l in seen]),
                    ("effective rank", "of the hidden states", [l.effective_rank for l in seen]),
                    ("directions", "that the updates of all tokens use", [l.directions for l in seen]),
                    ("W2 to next", "chordal, exact", [l.transport for l in seen]),
                ],
            )
        )
    return tables


def _table(title: str, columns: Sequence[tuple[str, str, Sequence[Any]]]) -> dict[str, Any]:
    return {
        "title": title,
        "columns": [
            {
                "name": name,
                "about": about,
                "values": values,
                "spark": svg(Trend([v.real if isinstance(v, complex) else v for v in values])),
            }
            for name, about, values in columns
        ],
    }


def _spectra_of(layer: LayerAudit) -> list[Spectra]:
    """All eigenvalues of a layer, and those around the dominant one of sum A and of M0."""
    values, products = layer.sum_values_spectrum, layer.sum_products_spectrum
    whole = _spectra(values, products, layer.layer)
    return [
        whole,
        Spectra(f"layer {layer.layer}, top of sum A", whole.parts, _window(values)),
        Spectra(f"layer {layer.layer}, top of M0", whole.parts, _window(products)),
    ]


def _window(eigenvalues: Sequence[complex]) -> tuple[float, float]:
    """(centre, reach) of a square that holds the first few eigenvalues by real part."""
    first = sorted(eigenvalues, key=lambda z: -z.real)[:ZOOMED]
    low, high = first[-1].real, first[0].real
    reach = 0.6 * max(high - low, 2 * max(abs(z.imag) for z in first), 1e-3 * abs(high), 1e-12)
    return (low + high) / 2, reach


def _spectra(values: Sequence[complex], products: Sequence[complex], layer: int) -> Spectra:
    """sum A and M0 of a layer; dominant is the eigenvalue of largest real part, with its conjugate."""
    parts = []
    for label, eigenvalues in (("sum A", values), ("M0", products)):
        top = max(eigenvalues, key=lambda z: z.real, default=0j)
        parts.append(Eigenvalues(label, eigenvalues, [z in (top, top.conjugate()) for z in eigenvalues]))
    return Spectra(f"layer {layer}", parts)


def _eigenvalue_lines(models: Sequence[WeightAudit], layer: int) -> Lines:
    """Real parts of the dominant eigenvalues from model to model; one of a complex pair is hollow."""
    seen = [model.layers[layer] for model in models]
    series, reals = [], [0.0]
    for colour, tops in ((TERMINAL, [l.top_sum_values for l in seen]), (EARLY, [l.top_sum_products for l in seen])):
        real = [z.real for z in tops]
        hollow = [abs(z.imag) > 1e-9 for z in tops]
        series.append(Series(range(len(tops)), real, "", "marked", colour=colour, hollow=hollow))
        reals += real
    low, high = min(reals), max(reals) or 1.0
    return Lines(f"layer {layer}", "", "", series, y_ticks={v: f"{v:.2g}" for v in (0.0, low, high)})


def _energies(loop: LoopAudit) -> Lines:
    """Energy in the dominant spaces of sum A and of M0 against log(1 + passes): medians, dotted the quartiles."""
    steps = loop.curve_steps
    place = [math.log1p(t) for t in steps]
    marks = sorted({0, *(10**k for k in range(5) if 10**k < 0.6 * steps[-1]), steps[-1]})
    series = [
        Series(place, row, "", style, colour=colour)
        for colour, curves in ((TERMINAL, loop.curve_terminal), (EARLY, loop.curve_early))
        for style, row in zip(("dotted", "line", "dotted"), curves, strict=True)
    ]
    ticks = {math.log1p(t): str(t) for t in marks}
    return Lines(f"layer {loop.layer}", "passes", "", series, x_ticks=ticks, y_ticks=SHARES)


def _maps(report: Audited) -> list[Grid]:
    def cells(heads: Sequence[Any], attribute: str, title: str, signed: bool = False) -> Grid:
        layers = range(len(report.weights.layers))
        values = [[float(getattr(h, attribute)) for h in heads if h.layer == l] for l in layers]
        return Grid(title, values, "layer", "head", signed)

    heads = report.weights.heads
    maps = [
        cells(heads, "kappa", "kappa of the weights"),
        cells(heads, "trace", "tr M / |A||B|: values match scores", signed=True),
        cells(heads, "angle", "degrees between top spaces of M and A"),
    ]
    if report.text is not None:
        maps.append(cells(report.text.heads, "entropy", "attention entropy / log n"))
        maps.append(cells(report.text.heads, "sink", "sink mass"))
        maps.append(cells(report.text.heads, "copying", "emits along what it attends: copies (blue)", signed=True))
    return maps


def _forecasts(report: Audited) -> dict[str, Any] | None:
    if report.text is None:
        return None
    steps = report.text.forecasts
    names = list(steps[0].cosine)
    layers = [step.layer for step in steps]
    series = []
    for name in names:
        colour = FORECAST_COLOURS[name]
        series.append(Series(layers, [s.cosine[name] for s in steps], _words(name), colour=colour))
        known = [s for s in steps if s.control[name] is not None]
        control = [s.control[name] for s in known]
        series.append(Series([s.layer for s in known], control, "", "dashed", colour=colour))
    ticks = {float(layer): str(layer) for layer in layers}
    title = "Cosine of one-step forecasts with the truth, by layer"
    chart = Lines(title, "layer", "cosine with the truth", series, x_ticks=ticks, y_ticks=QUARTERS)
    closures = Bars("cosines of closures", {_words(n): value for n, value in report.text.closures.items()})
    return {
        "chart": svg(chart, width=640, height=264, heading=False, label=title),
        "legend": legend(chart),
        "closures": svg(closures),
        "steps": steps,
        "names": names,
    }


def _words(name: str) -> str:
    return name.replace("_", " ")
