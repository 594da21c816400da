"""Drawings as plotly figures: the same data as the printed ones, to zoom, hover and scrub."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from metastable.errors import InvalidInput
from metastable.papers.drawing import Drawing, Lines, PhaseMap, Portrait, Series
from metastable.report.palette import COLOURS, PHASES, shade
from metastable.report.snapshots import place_colours, principal_axes
from metastable.theory import spectrum
from metastable.weights import AttentionWeights

DASHES = {"line": "solid", "dashed": "dash", "dotted": "dot", "steps": "dashdot"}
MAX_TOKENS = 600
MAX_FRAMES = 61


def figure(drawing: Drawing) -> go.Figure:
    """The plotly figure of a drawing."""
    if isinstance(drawing, Lines):
        return _lines(drawing)
    if isinstance(drawing, PhaseMap):
        return _phase_map(drawing)
    if isinstance(drawing, Portrait):
        return _portrait(drawing)
    raise InvalidInput(f"cannot draw a {type(drawing).__name__}; expected Lines, PhaseMap or Portrait")


def _styled(result: go.Figure, title: str, height: int = 430) -> go.Figure:
    result.update_layout(
        title={"text": title, "x": 0.02, "font": {"size": 16}},
        template="plotly_white",
        height=height,
        margin={"l": 70, "r": 20, "t": 56, "b": 56},
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#1f2933"},
        hoverlabel={"font": {"size": 12}},
    )
    return result


def _lines(drawing: Lines) -> go.Figure:
    result = go.Figure([_trace(one, index) for index, one in enumerate(drawing.series)])
    _styled(result, drawing.title, 520 if len(drawing.series) > 8 else 430)
    result.update_xaxes(title=drawing.x_label, type="log" if drawing.log_x else "linear")
    result.update_yaxes(
        title=drawing.y_label, type="log" if drawing.log_y else "linear", exponentformat="power", showexponent="all"
    )
    if drawing.log_y and drawing.y_floor is not None:
        top = max(float(np.nanmax(np.asarray(one.y, dtype=float))) for one in drawing.series)
        result.update_yaxes(range=[np.log10(drawing.y_floor), np.log10(top) + 0.1])
    return result


def _trace(one: Series, index: int) -> go.Scatter:
    colour = shade(one.shade) if one.shade is not None else COLOURS[index % len(COLOURS)]
    points = one.style == "points"
    return go.Scatter(
        x=_numbers(one.x),
        y=_numbers(one.y),
        name=one.label,
        mode="markers" if points else "lines",
        line=None if points else {"color": colour, "width": 2, "dash": DASHES[one.style]},
        marker={"color": colour, "size": 8} if points else None,
        hovertemplate="%{x:.4g}, %{y:.4g}<extra>%{fullData.name}</extra>",
    )


def _phase_map(drawing: PhaseMap) -> go.Figure:
    count = len(drawing.labels)
    steps = [[edge, colour] for i, colour in enumerate(PHASES[:count]) for edge in (i / count, (i + 1) / count)]
    names = np.array(drawing.labels)[drawing.phase]
    result = go.Figure(
        go.Heatmap(
            x=_numbers(drawing.times),
            y=[f"{b:g}" for b in drawing.betas],
            z=drawing.phase.tolist(),
            customdata=names,
            colorscale=steps,
            zmin=-0.5,
            zmax=count - 0.5,
            colorbar={"tickvals": list(range(count)), "ticktext": list(drawing.labels), "title": "nearest law"},
            hovertemplate="t = %{x:.3g}, β = %{y}: %{customdata}<extra></extra>",
        )
    )
    result.update_xaxes(title="time t")
    result.update_yaxes(title="inverse temperature β", type="category")
    return _styled(result, drawing.title, 380)


def _portrait(drawing: Portrait) -> go.Figure:
    """Tokens on the sphere, with a slider and a play button over time."""
    every = slice(None, None, max(1, int(np.ceil(drawing.points.shape[1] / MAX_TOKENS))))
    kept = np.unique(
        np.linspace(0, len(drawing.times) - 1, min(MAX_FRAMES, len(drawing.times))).round().astype(int)
    )
    points = np.asarray(drawing.points, dtype=float)[kept][:, every]
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

    labels = [f"{float(t):.3g}" for t in drawing.times[kept]]
    result = go.Figure([tokens(points[0]), *_globe(flat), *_directions(drawing, flat)])
    result.frames = [go.Frame(data=[tokens(x)], traces=[0], name=f"frame{i}") for i, x in enumerate(points)]
    show = {"frame": {"duration": 0, "redraw": True}, "mode": "immediate", "transition": {"duration": 0}}
    play = show | {"frame": {"duration": 90, "redraw": True}, "fromcurrent": True}
    steps = [{"args": [[f"frame{i}"], show], "label": label, "method": "animate"} for i, label in enumerate(labels)]
    buttons = [
        {"args": [None, play], "label": "Play", "method": "animate"},
        {"args": [[None], show], "label": "Pause", "method": "animate"},
    ]
    _styled(result, drawing.title, 620)
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
    angle = np.linspace(0, 2 * np.pi, 73)
    if flat:
        line = {"color": "#c8cdd3", "width": 1}
        return [
            go.Scatter(
                x=_numbers(np.cos(angle)), y=_numbers(np.sin(angle)), mode="lines", line=line, hoverinfo="skip",
                showlegend=False,
            )
        ]  # fmt: skip
    rings: list[np.ndarray] = []
    for latitude in np.radians([-60, -30, 0, 30, 60]):
        radius, height = np.cos(latitude), np.full_like(angle, np.sin(latitude))
        rings.append(np.stack([radius * np.cos(angle), radius * np.sin(angle), height], axis=1))
    for longitude in np.radians([0, 45, 90, 135]):
        across = np.cos(angle)
        rings.append(np.stack([across * np.cos(longitude), across * np.sin(longitude), np.sin(angle)], axis=1))
    # One trace with breaks between the rings is far lighter than one per ring.
    path = np.concatenate([np.concatenate([ring, np.full((1, 3), np.nan)]) for ring in rings])
    return [
        go.Scatter3d(
            x=_numbers(path[:, 0]),
            y=_numbers(path[:, 1]),
            z=_numbers(path[:, 2]),
            mode="lines",
            line={"color": "#d5dae0", "width": 1},
            hoverinfo="skip",
            showlegend=False,
        )
    ]


def _directions(drawing: Portrait, flat: bool) -> list[Any]:
    """The dominant directions of M and of V as diameters, where they are lines."""
    s = spectrum(AttentionWeights(V=drawing.V, B=drawing.B))
    result = []
    for part, label, colour in ((s.M, "E: top of M = V Bᵀ", PHASES[1]), (s.V, "top of V", PHASES[2])):
        if part.dimension != 1 or part.d > 3:
            continue
        ends = np.stack([-part.space[:, 0].numpy(), part.space[:, 0].numpy()]) * 1.06
        place = {name: _numbers(ends[:, i]) for i, name in enumerate("xy" if flat else "xyz")}
        kind = go.Scatter if flat else go.Scatter3d
        line = {"color": colour, "width": 2 if flat else 5}
        result.append(kind(**place, mode="lines", name=label, line=line, hoverinfo="name"))
    return result


def spectra(w: AttentionWeights) -> go.Figure:
    """Eigenvalues of M = V B^T and of V in the complex plane."""
    s = spectrum(w)
    result = go.Figure()
    for part, label, symbol, colour in (
        (s.M, "M = V Bᵀ", "circle", COLOURS[0]),
        (s.V, "V", "square", COLOURS[1]),
    ):
        values = part.eigenvalues.numpy()
        for top in (True, False):
            chosen = (np.arange(len(values)) < part.dimension) == top
            result.add_scatter(
                x=_numbers(values.real[chosen]),
                y=_numbers(values.imag[chosen]),
                mode="markers",
                name=f"{label}{', dominant' if top else ''}",
                marker={"size": 13, "symbol": symbol if top else f"{symbol}-open", "color": colour},
                hovertemplate="%{x:.4g} + %{y:.4g} i<extra>%{fullData.name}</extra>",
            )
    result.update_xaxes(title="real part", zeroline=True)
    result.update_yaxes(title="imaginary part", zeroline=True)
    return _styled(result, "Spectra of M = V Bᵀ and of V in the complex plane", 380)


def _numbers(values: Any) -> list[float | None]:
    array = np.asarray(values, dtype=float)
    return [None if not np.isfinite(v) else float(f"{v:.6g}") for v in array]
