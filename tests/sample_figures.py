"""One figure of every kind that claims draw."""

import numpy as np

from metastable import sphere
from metastable.drawing import Axis, Eigenvalues, Lines, MapPanel, Maps, PhaseMap, Portrait, Series, Spectra
from metastable.drawing.figures import STYLES

SPECTRA = Spectra("Spectra", [Eigenvalues("M", [2.0, 1 + 1j, 1 - 1j], [True, False, False])])


def lines() -> Lines:
    x = np.arange(1.0, 4.0)
    series = [Series(x, x * (i + 1), f"curve {i}", style, shade=0.5) for i, style in enumerate(STYLES)]
    return Lines("Curves", "time t", "value", series, log_x=True, log_y=True, y_floor=0.5)


def phase_map() -> PhaseMap:
    return PhaseMap("Phases", np.arange(3.0), np.array([4.0, 16.0]), np.array([[0, 1, 2], [0, 0, 1]]))


def maps() -> Maps:
    x, y = np.arange(3.0), np.arange(2.0)
    panels = [MapPanel(f"panel {i}", np.full((2, 3), i - 1.5), [Series([0, 2], [0, 1], "")]) for i in range(4)]
    return Maps("Maps", "x", "y", x, y, panels, "value", columns=3, largest=2.0)


def portrait(d: int) -> Portrait:
    x = sphere.uniform(20, d, seed=0).numpy()
    axes = [Axis("top of V", np.eye(d)[0], 2)]
    return Portrait("Tokens", np.array([0.0, 1.0]), np.stack([x, x[::-1]]), np.full(20, 0.05), axes, SPECTRA)


def figures() -> dict[str, Lines | PhaseMap | Maps | Portrait | Spectra]:
    tokens = {f"tokens in R^{d}": portrait(d) for d in (2, 3, 5)}
    return {"lines": lines(), "phases": phase_map(), "maps": maps(), "spectra": SPECTRA, **tokens}
