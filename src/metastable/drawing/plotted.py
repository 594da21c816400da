"""Figures as plotly plots: the same data as in print, to zoom, hover and scrub."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from metastable.drawing.figures import Figure, Lines, Maps, PhaseMap, Portrait, Series, Spectra
from metastable.drawing.palette import BAND, COLOURS, FRAME, GUIDE, INK, PHASES, RIM, SIGNED, UNSIGNED, colour_of
from metastable.drawing.tokens import evenly, graticule, place_colours, principal_axes
from metastable.errors import InvalidInput

MODES = {"points": "markers", "marked": "lines+markers"}
DASHES = {"line": "solid", "dashed": "dash", "dotted": "dot", "steps": "dashdot", "marked": "solid"}
SYMBOLS = ("circle", "square", "triangle-up", "diamond")
MERIDIANS = (0, 45, 90, 135)
MAX_TOKENS = 600
MAX_FRAMES = 61
"""Of more tokens, or more times, every k-th is kept: the page holds
600 x 61 x 3 numbers as text, which is close to a megabyte."""


def interactive(figure: Figure) -> go.Figure:
    """The plotly plot of a figure."""
    if isinstance(figure, Lines):
        return _lines(figure)
    if isinstance(figure, PhaseMap):
        return _phase_map(figure)
    if isinstance(figure, Maps):
        return _maps(figure)
    if isinstance(figure, Portrait):
        return _portrait(figure)
    if isinstance(figure, Spectra):
        return _spectra(figure)
    raise InvalidInput(
        f"cannot draw a {type(figure).__name__}; expected Lines, PhaseMap, Maps, Portrait or Spectra"
    )


def plot_html(figure: Figure) -> str:
    """The plot as a piece of a page that has plotly.js in it."""
    config = {"displaylogo": False, "responsive": True}
    plot = interactive(figure)
    return str(plot.to_html(full_html=False, include_plotlyjs=False, config=config, auto_play=False))


def _styled(result: go.Figure, title: str, height: int = 430) -> go.Figure:
    result.update_layout(
        title={"text": title, "x": 0.02, "font": {"size": 16}},
        template="plotly_white",
        height=height,
        margin={"l": 70, "r": 20, "t": 56, "b": 56},
        font={"family": "system-ui, sans-serif", "size": 13, "color": INK},
        hoverlabel={"font": {"size": 12}},
    )
    return result


def _lines(drawn: Lines) -> go.Figure:
    result = go.Figure([_trace(one, colour_of(one, place)) for place, one in enumerate(drawn.series)])
    _styled(result, drawn.title, 520 if len(drawn.series) > 8 else 430)
    result.update_xaxes(title=drawn.x_label, type="log" if drawn.log_x else "linear")
    result.update_yaxes(
        title=drawn.y_label, type="log" if drawn.log_y else "linear", exponentformat="power", showexponent="all"
    )
    result.update_xaxes(_marks(drawn.x_ticks))
    result.update_yaxes(_marks(drawn.y_ticks))
    for band in drawn.bands:
        result.add_vrect(
            x0=band.left,
            x1=band.right,
            fillcolor=BAND,
            line_width=0,
            layer="below",
            name=band.label,
            showlegend=True,
        )
    for x, text in (drawn.moments or {}).items():
        result.add_vline(x=x, line={"color": FRAME, "width": 1, "dash": "dot"}, annotation_text=text)
    if drawn.log_y and drawn.y_floor is not None:
        top = max(float(np.nanmax(np.asarray(one.y, dtype=float))) for one in drawn.series)
        result.update_yaxes(range=[np.log10(drawn.y_floor), np.log10(top) + 0.1])
    return result


def _marks(ticks: Mapping[float, str] | None) -> dict[str, Any]:
    if ticks is None:
        return {}
    places = list(ticks)
    return {"tickvals": places, "ticktext": list(ticks.values()), "autorangeoptions": {"include": places}}


def _trace(one: Series, colour: str) -> go.Scatter:
    mode = MODES.get(one.style, "lines")
    marker: dict[str, Any] = {"color": colour, "size": 8}
    if any(one.hollow):
        marker["symbol"] = ["circle-open" if open else "circle" for open in one.hollow]
    return go.Scatter(
        x=_numbers(one.x),
        y=_numbers(one.y),
        name=one.label,
        mode=mode,
        line={"color": colour, "width": 2, "dash": DASHES[one.style]} if "lines" in mode else None,
        marker=marker if "markers" in mode else None,
        error_y={"array": _numbers(one.error), "thickness": 1.2} if len(one.error) else None,
        showlegend=None if one.label else False,
        hovertemplate="%{x:.4g}, %{y:.4g}<extra>%{fullData.name}</extra>",
    )


def _phase_map(drawn: PhaseMap) -> go.Figure:
    count = len(drawn.labels)
    steps = [[edge, colour] for i, colour in enumerate(PHASES[:count]) for edge in (i / count, (i + 1) / count)]
    names = np.array(drawn.labels)[drawn.phase]
    result = go.Figure(
        go.Heatmap(
            x=_numbers(drawn.times),
            y=[f"{b:g}" for b in drawn.betas],
            z=drawn.phase.tolist(),
            customdata=names,
            colorscale=steps,
            zmin=-0.5,
            zmax=count - 0.5,
            colorbar={"tickvals": list(range(count)), "ticktext": list(drawn.labels), "title": "phase"},
            hovertemplate="t = %{x:.3g}, β = %{y}: %{customdata}<extra></extra>",
        )
    )
    result.update_xaxes(title="time t")
    result.update_yaxes(title="inverse temperature β", type="category")
    return _styled(result, drawn.title, 380)


def _maps(drawn: Maps) -> go.Figure:
    """Panels side by side with one scale of colours."""
    columns = min(drawn.columns, len(drawn.panels))
    lines = -(-len(drawn.panels) // columns)
    result = make_subplots(
        lines,
        columns,
        shared_xaxes=True,
        shared_yaxes=True,
        subplot_titles=[panel.title for panel in drawn.panels],
        x_title=drawn.x_label,
        y_title=drawn.y_label,
        horizontal_spacing=0.03,
        vertical_spacing=0.18 / lines,
    )
    for place, panel in enumerate(drawn.panels):
        at = {"row": place // columns + 1, "col": place % columns + 1}
        values = [_numbers(row) for row in panel.values]
        cells = go.Heatmap(x=_numbers(drawn.x), y=_numbers(drawn.y), z=values, coloraxis="coloraxis")
        result.add_trace(cells.update(hovertemplate="%{x:.3g}, %{y:.3g}: %{z:.3g}<extra></extra>"), **at)
        for one in panel.curves:
            ink = INK if drawn.signed else COLOURS[1]  # seen on all of the scale
            result.add_trace(_trace(one, ink).update(showlegend=False, hoverinfo="skip", hovertemplate=None), **at)
    ends = {
        "cmin": -drawn.largest if drawn.signed else 0.0,
        "cmax": drawn.largest,
        "colorbar": {"title": drawn.colour},
    }
    _styled(result, drawn.title, 180 + 210 * lines)
    return result.update_layout(coloraxis={"colorscale": SIGNED if drawn.signed else UNSIGNED} | ends)


def _portrait(drawn: Portrait) -> go.Figure:
    """Tokens on the sphere, with a slider and a play button over time."""
    every = slice(None, None, max(1, int(np.ceil(drawn.points.shape[1] / MAX_TOKENS))))
    kept = evenly(len(drawn.times), MAX_FRAMES)
    points = np.asarray(drawn.points, dtype=float)[kept][:, every]
    rgba = place_colours(points[0])
    colours = [f"rgb({r * 255:.0f},{g * 255:.0f},{b * 255:.0f})" for r, g, b, _ in rgba]
    d = points.shape[2]
    if d > 3:
        points = points @ principal_axes(list(points), np.full(points.shape[1], 1.0 / points.shape[1]), 3)
    flat = d == 2

    def tokens(x: np.ndarray) -> Any:
        place = {name: np.round(x[:, i], 4).tolist() for i, name in enumerate("xy" if flat else "xyz")}
        kind = go.Scatter if flat else go.Scatter3d
        marker = {"size": 6 if flat else 4, "color": colours}
        return kind(**place, mode="markers", marker=marker, name="tokens", hoverinfo="skip", showlegend=False)

    labels = [f"{float(t):.3g}" for t in drawn.times[kept]]
    result = go.Figure([tokens(points[0]), *_globe(flat), *(_axes(drawn, flat) if d <= 3 else [])])
    result.frames = [go.Frame(data=[tokens(x)], traces=[0], name=f"frame{i}") for i, x in enumerate(points)]
    show = {"frame": {"duration": 0, "redraw": True}, "mode": "immediate", "transition": {"duration": 0}}
    play = show | {"frame": {"duration": 90, "redraw": True}, "fromcurrent": True}
    steps = [{"args": [[f"frame{i}"], show], "label": label, "method": "animate"} for i, label in enumerate(labels)]
    buttons = [
        {"args": [None, play], "label": "Play", "method": "animate"},
        {"args": [[None], show], "label": "Pause", "method": "animate"},
    ]
    _styled(result, drawn.title, 620)
    result.update_layout(
        sliders=[
            {"steps": steps, "currentvalue": {"prefix": "time t = "}, "x": 0.12, "len": 0.86, "pad": {"t": 8}}
        ],
        updatemenus=[
            {"type": "buttons", "buttons": buttons, "direction": "left", "x": 0.0, "y": -0.03, "yanchor": "top"}
        ],
        margin={"l": 20, "r": 20, "t": 56, "b": 20},
    )
    if flat:
        result.update_yaxes(scaleanchor="x", title="x₂")
        result.update_xaxes(title="x₁")
    else:
        names = ("x₁", "x₂", "x₃") if d == 3 else tuple(f"principal axis {i}" for i in (1, 2, 3))
        axes = {
            f"{axis}axis": {"title": name, "range": [-1.08, 1.08], "nticks": 5}
            for axis, name in zip("xyz", names, strict=True)
        }
        result.update_scenes(aspectmode="cube", camera={"eye": {"x": 1.25, "y": 1.1, "z": 0.7}}, **axes)
    return result


def _globe(flat: bool) -> list[Any]:
    if flat:
        angle = np.linspace(0, 2 * np.pi, 73)
        line = {"color": RIM, "width": 1}
        return [
            go.Scatter(
                x=_numbers(np.cos(angle)), y=_numbers(np.sin(angle)), mode="lines", line=line, hoverinfo="skip",
                showlegend=False,
            )
        ]  # fmt: skip
    # One trace with breaks between the rings is far lighter than one per ring.
    path = np.concatenate([np.concatenate([ring, np.full((1, 3), np.nan)]) for ring in graticule(MERIDIANS, 73)])
    return [
        go.Scatter3d(
            x=_numbers(path[:, 0]),
            y=_numbers(path[:, 1]),
            z=_numbers(path[:, 2]),
            mode="lines",
            line={"color": GUIDE, "width": 1},
            hoverinfo="skip",
            showlegend=False,
        )
    ]


def _axes(drawn: Portrait, flat: bool) -> list[Any]:
    """The axes as diameters, a little longer than the sphere is wide."""
    kind = go.Scatter if flat else go.Scatter3d
    result = []
    for axis in drawn.axes:
        ends = np.stack([-axis.direction, axis.direction]) * 1.06
        place = {name: _numbers(ends[:, i]) for i, name in enumerate("xy" if flat else "xyz")}
        line = {"color": PHASES[axis.phase], "width": 2 if flat else 5}
        result.append(kind(**place, mode="lines", name=axis.label, line=line, hoverinfo="name"))
    return result


def _spectra(drawn: Spectra) -> go.Figure:
    """Eigenvalues in the complex plane, the dominant ones filled."""
    result = go.Figure()
    for part, symbol, colour in zip(drawn.parts, SYMBOLS, COLOURS, strict=False):
        values, dominant = np.asarray(part.values), np.asarray(part.dominant, dtype=bool)
        for top in (True, False):
            chosen = dominant == top
            result.add_scatter(
                x=_numbers(values.real[chosen]),
                y=_numbers(values.imag[chosen]),
                mode="markers",
                name=f"{part.label}{', dominant' if top else ''}",
                marker={"size": 13, "symbol": symbol if top else f"{symbol}-open", "color": colour},
                hovertemplate="%{x:.4g} + %{y:.4g} i<extra>%{fullData.name}</extra>",
            )
    result.update_xaxes(title="real part", zeroline=True)
    result.update_yaxes(title="imaginary part", zeroline=True)
    if drawn.window is not None:
        centre, reach = drawn.window
        result.update_xaxes(range=[centre - reach, centre + reach])
        result.update_yaxes(range=[-reach, reach])
    return _styled(result, f"{drawn.title} in the complex plane", 380)


def _numbers(values: Any) -> list[float | None]:
    array = np.asarray(values, dtype=float)
    return [None if not np.isfinite(v) else float(f"{v:.6g}") for v in array]
