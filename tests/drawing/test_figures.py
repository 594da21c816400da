import subprocess
import sys

import numpy as np
import pytest

from metastable.drawing import (
    Axis,
    Bars,
    Eigenvalues,
    Grid,
    Lines,
    MapPanel,
    Maps,
    PhaseMap,
    Portrait,
    Series,
    Spectra,
    Tracks,
    Trend,
    shaded,
)
from metastable.drawing.figures import caption
from metastable.errors import InvalidInput
from sample_figures import figures, lines


def test_a_family_goes_from_light_to_dark():
    made = shaded([([0], [k]) for k in range(3)], ["a", "b", "c"], "dashed")
    assert [(one.label, one.style, one.shade) for one in made] == [
        ("a", "dashed", 0.0),
        ("b", "dashed", 0.5),
        ("c", "dashed", 1.0),
    ]
    assert [one.shade for one in shaded([([0], [1])], ["alone"])] == [0.0]
    assert shaded([([0], [k]) for k in range(2)], ["a", "b"], darkest=4)[1].shade == 0.25
    with pytest.raises(InvalidInput, match="got 1 curves, 2 labels"):
        shaded([([0], [1])], ["one", "too many"])


def test_a_series_that_cannot_be_drawn_is_refused_where_it_is_made():
    with pytest.raises(InvalidInput, match=r"unknown style 'wavy'; choose from line, dashed"):
        Series([0], [1], "a", "wavy")
    with pytest.raises(InvalidInput, match="hollow needs a value for each of the 2 points, got 1"):
        Series([0, 1], [1, 2], "a", "marked", hollow=[True])
    with pytest.raises(InvalidInput, match="error needs a value for each of the 2 points, got 1"):
        Series([0, 1], [1, 2], "a", "points", error=[0.1])


def test_captions_say_what_is_drawn_against_what():
    assert caption(lines()) == "Curves: value against time t"
    assert all(caption(figure) for figure in figures().values())
    assert caption(Trend([None, 1.0, float("nan"), 3.5])) == "from 1 to 3.5"
    assert caption(Trend([None])) == ""


def test_figures_are_described_without_the_libraries_that_draw_them():
    heavy = ("matplotlib", "plotly", "jinja2", "joblib", "rich")
    check = f"import sys, metastable.drawing, metastable.papers; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("curves", "labels"), [(3, ["a"]), ([([0], [1])], "a"), ([([0], [1])], ["a", "b"]), ([3], ["a"]), (None, None)]
)
def test_families_that_do_not_fit_are_refused(curves, labels):
    with pytest.raises(InvalidInput):
        shaded(curves, labels)


ROW, TABLE = np.zeros(3), np.zeros((2, 3))


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Series, {"x": None, "y": ROW, "label": "a"}),
        (Series, {"x": ROW, "y": np.zeros(2), "label": "a"}),
        (Series, {"x": ROW, "y": ["1", "2", "3"], "label": "a"}),
        (Series, {"x": ROW, "y": 1j * ROW, "label": "a"}),
        (Series, {"x": ROW, "y": [[1], [2, 3], []], "label": "a"}),
        (Series, {"x": ROW, "y": ROW, "label": 3}),
        (Series, {"x": ROW, "y": ROW, "label": "a", "shade": "dark"}),
        (Series, {"x": ROW, "y": ROW, "label": "a", "colour": -1}),
        (Series, {"x": ROW, "y": ROW, "label": "a", "hollow": [1, 2, 3]}),
        (Lines, {"title": "t", "x_label": "x", "y_label": "y", "series": None}),
        (Lines, {"title": "t", "x_label": "x", "y_label": "y", "series": [1]}),
        (Lines, {"title": None, "x_label": "x", "y_label": "y", "series": []}),
        (Lines, {"title": "t", "x_label": "x", "y_label": "y", "series": [], "log_x": 1}),
        (Lines, {"title": "t", "x_label": "x", "y_label": "y", "series": [], "y_floor": "low"}),
        (Lines, {"title": "t", "x_label": "x", "y_label": "y", "series": [], "x_ticks": [1]}),
        (Lines, {"title": "t", "x_label": "x", "y_label": "y", "series": [], "x_ticks": {1.0: 1}}),
        (PhaseMap, {"title": "t", "times": ROW, "betas": ROW, "phase": TABLE.astype(int)}),
        (PhaseMap, {"title": "t", "times": ROW, "betas": ROW[:2], "phase": TABLE.astype(int) + 3}),
        (Eigenvalues, {"label": "M", "values": [1.0], "dominant": [True, False]}),
        (Eigenvalues, {"label": "M", "values": ["1"], "dominant": [True]}),
        (Spectra, {"title": "t", "parts": [1]}),
        (Axis, {"label": "E", "direction": "up", "phase": 1}),
        (Axis, {"label": "E", "direction": ROW, "phase": 3}),
        (Portrait, {"title": "t", "times": ROW, "points": TABLE, "mass": ROW}),
        (Portrait, {"title": "t", "times": ROW, "points": np.zeros((3, 4, 2)), "mass": ROW}),
        (Grid, {"title": "t", "values": [[1], ["a"]], "row": "r", "column": "c"}),
        (Grid, {"title": "t", "values": [1, 2], "row": "r", "column": "c"}),
        (Bars, {"title": "t", "values": [1]}),
        (Bars, {"title": "t", "values": {"a": "b"}}),
        (Tracks, {"title": "t", "tracks": [[1, 2, 3]]}),
        (Tracks, {"title": "t", "tracks": None}),
        (Trend, {"values": "abc"}),
        (shaded, {"curves": [(ROW, ROW)], "labels": []}),
        (shaded, {"curves": [ROW], "labels": ["a"]}),
        (shaded, {"curves": None, "labels": ["a"]}),
    ],
)
def test_nonsense_is_refused_where_a_figure_is_described(kind, arguments):
    with pytest.raises(InvalidInput) as refused:
        kind(**arguments)
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


def test_every_panel_of_maps_has_a_number_for_every_place():
    values = np.zeros((2, 3))
    with pytest.raises(InvalidInput, match="panel 'a' needs as many of each, got 3 columns, 2 places"):
        Maps("t", "x", "y", np.arange(2.0), np.arange(2.0), [MapPanel("a", values)], "c")
    with pytest.raises(InvalidInput, match="panel 'a' needs as many of each, got 2 rows, 4 places"):
        Maps("t", "x", "y", np.arange(3.0), np.arange(4.0), [MapPanel("a", values)], "c")
    with pytest.raises(InvalidInput, match="largest must be > 0"):
        Maps("t", "x", "y", np.arange(3.0), np.arange(2.0), [MapPanel("a", values)], "c", largest=0.0)
    with pytest.raises(InvalidInput, match="maps need a panel and places, got 0 panels of 2 x 3"):
        Maps("t", "x", "y", np.arange(3.0), np.arange(2.0), [], "c")
    with pytest.raises(InvalidInput, match="panels must be a sequence of panels"):
        Maps("t", "x", "y", np.arange(3.0), np.arange(2.0), [values], "c")
