"""The drawings of a report as inline SVG: no script, no network, sharp at every size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import pairwise

BLUE, ORANGE, GREY, GREEN = "#2460a7", "#d9722e", "#9aa3ad", "#2f8f5b"


def sparkline(values: Sequence[float | None], width: int = 76, height: int = 20) -> str:
    """A small line over layers; the last value is marked."""
    known = [(i, v) for i, v in enumerate(values) if v is not None and math.isfinite(v)]
    if not known:
        return ""
    low, high = min(v for _, v in known), max(v for _, v in known)
    span = high - low or 1.0
    step = (width - 6) / max(len(values) - 1, 1)
    places = [(3 + i * step, height - 4 - (height - 8) * (v - low) / span) for i, v in known]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    x, y = places[-1]
    return (
        f'<svg class="spark" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
        f'aria-label="from {known[0][1]:.3g} to {known[-1][1]:.3g}"><polyline points="{line}" fill="none" '
        f'stroke="{BLUE}" stroke-width="1.4"/><circle cx="{x:.1f}" cy="{y:.1f}" r="2" fill="{BLUE}"/></svg>'
    )


def complex_plane(values: Sequence[complex], products: Sequence[complex], title: str, size: int = 152) -> str:
    """Eigenvalues of sum A (blue) and M0 (orange) in the complex plane, the dominant ones ringed."""
    reach = 1.08 * max((abs(z) for z in (*values, *products)), default=1.0) or 1.0

    def place(z: complex) -> tuple[float, float]:
        return size / 2 * (1 + z.real / reach), size / 2 * (1 - z.imag / reach)

    parts = [_open(size, size + 18, f"spectra of {title}")]
    middle = size / 2
    parts.append(f'<path d="M0 {middle}H{size}M{middle} 0V{size}" stroke="#d5dae0" fill="none"/>')
    for eigenvalues, colour, opacity in ((values, BLUE, 0.55), (products, ORANGE, 0.6)):
        for z in eigenvalues:
            if abs(z) > 1e-3 * reach:
                x, y = place(z)
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.7" fill="{colour}" opacity="{opacity}"/>')
        if eigenvalues:
            top = max(eigenvalues, key=lambda z: z.real)
            for z in {top, top.conjugate()}:
                x, y = place(z)
                parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="none" stroke="{colour}"/>')
    parts.append(f'<text x="{size - 2}" y="11" text-anchor="end" class="tick">±{reach:.2g}</text>')
    parts.append(
        f'<text x="{middle}" y="{size + 14}" text-anchor="middle" class="label">{escape(title)}</text></svg>'
    )
    return "".join(parts)


def heads_map(rows: Sequence[Sequence[float]], title: str, signed: bool = False, cell: int = 20) -> str:
    """A grid of heads (columns) by layers (rows); darker is larger, blue positive, orange negative."""
    top = max((abs(v) for row in rows for v in row if math.isfinite(v)), default=1.0) or 1.0
    columns = max(len(row) for row in rows)
    left, head = 26, 16
    size = max(7, min(cell, 460 // columns))
    parts = [_open(max(left + columns * size + 4, 310), head + len(rows) * size + 20, f"{title} by layer and head")]
    parts.append(f'<text x="{left}" y="11" class="label">{escape(title)}</text>')
    for l, row in enumerate(rows):
        y = head + l * size
        parts.append(f'<text x="{left - 5}" y="{y + size * 0.7:.1f}" text-anchor="end" class="tick">{l}</text>')
        for h, value in enumerate(row):
            colour = ORANGE if signed and value < 0 else BLUE
            share = min(1.0, abs(value) / top)
            parts.append(
                f'<rect x="{left + h * size}" y="{y}" width="{size - 1}" height="{size - 1}" fill="{colour}" '
                f'fill-opacity="{0.06 + 0.94 * share:.3f}"><title>layer {l}, head {h}: {value:.4g}</title></rect>'
            )
    below = head + len(rows) * size + 13
    parts.append(
        f'<text x="{left}" y="{below}" class="tick">heads across, layers down; darkest {top:.3g}</text></svg>'
    )
    return "".join(parts)


def forecast_chart(cosines: dict[str, list[float]], controls: dict[str, list[float | None]]) -> str:
    """Cosine of every forecast with the true update by layer (line), its control (dashed)."""
    colours = {"gaussian": BLUE, "argmax": ORANGE, "uniform": GREEN, "zero_temperature": "#8a4fa3"}
    width, height, left = 640, 260, 50
    layers = len(next(iter(cosines.values())))
    low = min(0.0, *(v for values in cosines.values() for v in values), *_known(controls)) - 0.05

    def place(l: int, v: float) -> tuple[float, float]:
        x = left + 8 + l * (width - left - 24) / max(layers - 1, 1)
        return x, 10 + (height - 50) * (1 - (v - low) / (1 - low))

    parts = [_open(width, height + 4, "cosine of one-step forecasts with the truth, by layer")]
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = place(0, tick)[1]
        parts.append(f'<path d="M{left} {y:.1f}H{width}" stroke="#e3e7eb"/>')
        parts.append(f'<text x="{left - 4}" y="{y + 3:.1f}" text-anchor="end" class="tick">{tick:g}</text>')
    for name, values in cosines.items():
        colour = colours.get(name, GREY)
        parts.append(_line([place(l, v) for l, v in enumerate(values)], colour))
        beside = [place(l, v) for l, v in enumerate(controls.get(name, [])) if v is not None]
        if beside:
            parts.append(_line(beside, colour, "4 3", 0.6))
    for l in range(layers):
        parts.append(
            f'<text x="{place(l, 0)[0]:.1f}" y="{height - 22}" text-anchor="middle" class="tick">{l}</text>'
        )
    middle, y = left + (width - left) / 2, 10 + (height - 50) / 2
    parts.append(f'<text x="{middle}" y="{height - 4}" text-anchor="middle" class="label">layer</text>')
    turned = f'transform="rotate(-90 12 {y})"'
    parts.append(f'<text x="12" y="{y}" text-anchor="middle" class="label" {turned}>cosine with the truth</text>')
    parts.append("</svg>")
    legend = "".join(
        f'<span class="key"><i style="background:{colours.get(n, GREY)}"></i>{escape(n.replace("_", " "))}</span>'
        for n in cosines
    )
    return (
        "".join(parts)
        + f'<div class="legend">{legend}<span class="key">dashed: its control, other heads\' scores</span></div>'
    )


def bars(values: dict[str, float]) -> str:
    """Horizontal bars between 0 and 1 with their numbers."""
    width, row = 420, 22
    parts = [_open(width, row * len(values) + 4, "cosines of closures")]
    for i, (name, value) in enumerate(values.items()):
        y = i * row
        parts.append(
            f'<text x="140" y="{y + 15}" text-anchor="end" class="label">{escape(name.replace("_", " "))}</text>'
        )
        length = 220 * max(0.0, min(1.0, value))
        parts.append(f'<rect x="148" y="{y + 4}" width="{length:.1f}" height="14" fill="{BLUE}" rx="2"/>')
        parts.append(f'<text x="{154 + length:.1f}" y="{y + 15}" class="tick">{value:.2f}</text>')
    return "".join(parts) + "</svg>"


def loop_curves(steps: Sequence[int], terminal: Sequence[float], early: Sequence[float], title: str) -> str:
    """Energy in the space of sum A (blue) and of M0 (orange) along the loop, on a logarithmic axis of steps."""
    width, height, left, top, below = 290, 168, 36, 22, 34
    last = math.log1p(steps[-1]) or 1.0

    def across(t: int) -> float:
        return left + (width - left - 14) * math.log1p(t) / last

    def down(share: float) -> float:
        return top + (height - top - below) * (1 - share)

    parts = [_open(width, height, f"energy along the loop, {title}")]
    parts.append(f'<text x="{left}" y="13" class="label">{escape(title)}</text>')
    for share in (0.0, 0.5, 1.0):
        y = down(share)
        parts.append(f'<path d="M{left} {y:.1f}H{width - 14}" stroke="#e3e7eb"/>')
        parts.append(f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end" class="tick">{share:.0%}</text>')
    for t in sorted({0, *(10**k for k in range(5) if 10**k < 0.6 * steps[-1]), steps[-1]}):
        x = f'x="{across(t):.1f}" y="{height - 20}" text-anchor="middle"'
        parts.append(f'<text {x} class="tick">{t}</text>')
    for values, colour in ((terminal, BLUE), (early, ORANGE)):
        parts.append(_line([(across(t), down(v)) for t, v in zip(steps, values, strict=True)], colour))
    centre = left + (width - left) / 2
    parts.append(f'<text x="{centre}" y="{height - 5}" text-anchor="middle" class="tick">steps</text></svg>')
    return "".join(parts)


def eigenvalue_lines(values: Sequence[complex], products: Sequence[complex], title: str) -> str:
    """Real part of the dominant eigenvalue of sum A (blue) and of M0 (orange) from model to model of a series.

    A hollow dot is one of a complex pair.
    """
    width, height, left, top, below = 234, 140, 40, 22, 14
    known = [z.real for z in (*values, *products)]
    low, high = min(0.0, *known), max(0.0, *known) or 1.0

    def place(i: int, z: complex) -> tuple[float, float]:
        x = left + 6 + (width - left - 16) * i / max(len(values) - 1, 1)
        return x, top + (height - top - below) * (high - z.real) / (high - low)

    parts = [_open(width, height, f"dominant eigenvalues along the series, {title}")]
    parts.append(f'<text x="{left}" y="13" class="label">{escape(title)}</text>')
    for tick in {0.0, low, high}:
        y = place(0, complex(tick))[1]
        parts.append(f'<path d="M{left} {y:.1f}H{width - 4}" stroke="#e3e7eb"/>')
        parts.append(f'<text x="{left - 4}" y="{y + 4:.1f}" text-anchor="end" class="tick">{tick:.2g}</text>')
    for eigenvalues, colour in ((values, BLUE), (products, ORANGE)):
        places = [place(i, z) for i, z in enumerate(eigenvalues)]
        parts.append(_line(places, colour))
        for (x, y), z in zip(places, eigenvalues, strict=True):
            fill = "#fff" if abs(z.imag) > 1e-9 else colour
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{fill}" stroke="{colour}"/>')
    return "".join(parts) + "</svg>"


def loop_paths(trajectories: Sequence[Sequence[Sequence[float]]], title: str, size: int = 168) -> str:
    """Tokens in the plane of the two largest principal directions of the run; dots mark their ends.

    Where a token went far between two frames (a long rotation is cut short), no line is drawn.
    """
    parts = [_open(size, size, f"trajectories, {title}")]
    middle = size / 2
    parts.append(f'<circle cx="{middle}" cy="{middle}" r="{middle - 4}" fill="none" stroke="#d5dae0"/>')
    for token in trajectories:
        places = [(middle + (middle - 4) * x, middle - (middle - 4) * y) for x, y in token]
        parts += [_line(piece, BLUE, opacity=0.35, width=0.9) for piece in _pieces(places, 0.4 * size)]
        x, y = places[-1]
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{ORANGE}" fill-opacity="0.75"/>')
    return "".join(parts) + "</svg>"


def _pieces(places: Sequence[tuple[float, float]], reach: float) -> list[list[tuple[float, float]]]:
    pieces = [[places[0]]]
    for before, place in pairwise(places):
        if math.dist(before, place) > reach:
            pieces.append([])
        pieces[-1].append(place)
    return [piece for piece in pieces if len(piece) > 1]


def _open(width: float, height: float, label: str) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    return f'<svg {size} role="img" aria-label="{escape(label)}">'


def _line(
    places: Sequence[tuple[float, float]], colour: str, dash: str = "", opacity: float = 1.0, width: float = 1.8
) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    style = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" '
        f'stroke-opacity="{opacity}" stroke-linejoin="round"{style}/>'
    )


def _known(values: dict[str, list[float | None]]) -> list[float]:
    return [v for row in values.values() for v in row if v is not None]
