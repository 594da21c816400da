"""Rendering: a report, or a series of them, as one offline HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from metastable.audit import figures

if TYPE_CHECKING:
    from metastable.audit.report import AuditReport
    from metastable.audit.series import AuditSeries


def render(report: AuditReport) -> str:
    """The page of one audit."""
    return _template("report.html.j2").render(
        r=report,
        tables=_tables(report),
        spectra=[
            Markup(figures.complex_plane(l.sum_values_spectrum, l.sum_products_spectrum, f"layer {l.layer}"))
            for l in report.weights.layers
        ],
        maps=_maps(report),
        forecasts=_forecasts(report),
        loops=[
            {
                "loop": loop,
                "curve": Markup(
                    figures.loop_curves(
                        loop.curve_steps, loop.curve_terminal, loop.curve_early, f"layer {loop.layer}"
                    )
                ),
                "paths": Markup(figures.loop_paths(loop.trajectories, f"layer {loop.layer}")),
            }
            for loop in report.loops
        ],
    )


def render_series(series: AuditSeries) -> str:
    """The page of a series: how the numbers move from one model to the next."""
    rows = [
        {"name": name, "values": values, "spark": Markup(figures.sparkline(values, 120, 24))}
        for name, values in series.table().items()
    ]
    layers = range(len(series.reports[0].weights.layers))
    lines = []
    for l in layers:
        seen = [r.weights.layers[l] for r in series.reports]
        drawn = figures.eigenvalue_lines(
            [w.top_sum_values for w in seen], [w.top_sum_products for w in seen], f"layer {l}"
        )
        lines.append(Markup(drawn))
    loops = [[r.loops[l] for r in series.reports] for l in layers]
    return _template("series.html.j2").render(s=series, rows=rows, lines=lines, loops=loops)


def _template(name: str) -> jinja2.Template:
    folder = resources.files("metastable.audit") / "templates"
    sources = {f.name: f.read_text(encoding="utf-8") for f in folder.iterdir() if f.name.endswith(".j2")}
    environment = jinja2.Environment(
        loader=jinja2.DictLoader(sources),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": _number, "share": _share, "cosine": _cosine}
    return environment.get_template(name)


def _number(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, complex):
        return f"{value.real:.3g}" if abs(value.imag) < 1e-9 else f"{value.real:.3g} ± {abs(value.imag):.2g}i"
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _cosine(value: float | None) -> str:
    return "–" if value is None else f"{round(value, 2) + 0.0:.2f}"  # + 0.0: no "-0.00"


def _tables(report: AuditReport) -> list[dict[str, Any]]:
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
                ("stable rank", "of sum A: directions written to", [l.stable_rank for l in layers]),
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
                    ("mean cosine", f"between tokens of one {report.text.item}", [l.mean_cosine for l in seen]),
                    ("effective rank", "of the tokens", [l.effective_rank for l in seen]),
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
                "spark": Markup(figures.sparkline([v.real if isinstance(v, complex) else v for v in values])),
            }
            for name, about, values in columns
        ],
    }


def _maps(report: AuditReport) -> list[Markup]:
    def grid(heads: Sequence[Any], attribute: str) -> list[list[float]]:
        count = len(report.weights.layers)
        return [[float(getattr(h, attribute)) for h in heads if h.layer == l] for l in range(count)]

    heads = report.weights.heads
    drawn = [
        figures.heads_map(grid(heads, "kappa"), "kappa of the weights"),
        figures.heads_map(grid(heads, "trace"), "tr M / |A||B|: copies (blue) or suppresses", signed=True),
        figures.heads_map(grid(heads, "angle"), "degrees between top spaces of M and A"),
    ]
    if report.text is not None:
        drawn.append(figures.heads_map(grid(report.text.heads, "entropy"), "attention entropy / log n"))
        drawn.append(figures.heads_map(grid(report.text.heads, "sink"), "sink mass"))
    return [Markup(svg) for svg in drawn]


def _forecasts(report: AuditReport) -> dict[str, Any] | None:
    if report.text is None:
        return None
    steps = report.text.forecasts
    names = list(steps[0].cosine)
    chart = figures.forecast_chart(
        {n: [s.cosine[n] for s in steps] for n in names}, {n: [s.control[n] for s in steps] for n in names}
    )
    return {
        "chart": Markup(chart),
        "closures": Markup(figures.bars(report.text.closures)),
        "steps": steps,
        "names": names,
    }
