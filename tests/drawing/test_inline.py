import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from metastable.drawing import Band, Bars, Eigenvalues, Grid, Lines, Series, Spectra, Tracks, Trend, svg
from metastable.drawing.inline import legend
from metastable.drawing.palette import BAND, COLOURS
from metastable.errors import InvalidInput
from sample_figures import SPECTRA, lines, phase_map

NASTY = "<b>&\"x'"
FIGURES = {
    "lines": Lines(NASTY, NASTY, NASTY, [Series([0, 1, 2], [1.0, np.nan, 3.0], NASTY)], x_ticks={0.0: NASTY}),
    "logarithmic": lines(),
    "one point": Lines("one", "x", "y", [Series([1], [2], "a", "points")]),
    "spectra": Spectra(NASTY, SPECTRA.parts),
    "empty spectra": Spectra("none", [Eigenvalues("M", [], [])]),
    "grid": Grid(NASTY, [[1.0, -2.0], [float("nan")]], "layer", "head", signed=True),
    "zeros": Grid("zeros", [[0.0]], "layer", "head"),
    "bars": Bars(NASTY, {NASTY: 0.5, "below": -0.25, "above": 2.0}),
    "tracks": Tracks(NASTY, [[(0.0, 0.0), (0.1, 0.0), (0.9, 0.9)]]),
    "trend": Trend([1.0, None, 2.0]),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_drawing_is_one_well_formed_element_inside_its_frame(name):
    drawn = ElementTree.fromstring(svg(FIGURES[name]))
    assert drawn.tag == "svg" and drawn.get("role") == "img" and drawn.get("aria-label")
    _, _, width, height = map(float, drawn.get("viewBox").split())
    for circle in drawn.iter("circle"):
        assert 0 <= float(circle.get("cx")) <= width and 0 <= float(circle.get("cy")) <= height
    for line in drawn.iter("polyline"):
        for x, y in (map(float, place.split(",")) for place in line.get("points").split()):
            assert 0 <= x <= width and 0 <= y <= height


def test_curves_lie_between_the_marks_of_their_axes():
    series = [Series([0, 1, 2], [0.0, 0.5, 1.0], "up"), Series([0, 1, 2], [1.0, 0.5, 0.0], "down")]
    drawn = svg(Lines("t", "x", "y", series, y_ticks={0.0: "0", 1.0: "1"}), width=200, height=100)
    up, down = (
        [float(p.split(",")[1]) for p in line.split()] for line in re.findall('polyline points="(.*?)"', drawn)
    )
    assert up == sorted(up, reverse=True) and up == down[::-1]
    grid = sorted(float(y) for y in re.findall(r"<path d=\"M\d+ ([\d.]+)H", drawn))
    assert grid == [min(up), max(up)]


def test_a_mark_beyond_the_curve_widens_the_axis():
    def top(ticks):
        drawn = svg(Lines("t", "x", "", [Series([0, 1], [0.0, 0.5], "a")], y_ticks=ticks))
        return min(float(p.split(",")[1]) for p in re.search('polyline points="(.*?)"', drawn).group(1).split())

    assert top({0.0: "0", 1.0: "1"}) > top({0.0: "0"})


def test_logarithmic_axes_are_marked_in_plain_numbers():
    drawn = svg(Lines("t", "x", "y", [Series([1, 10, 100], [1e-3, 1e-2, 1e-1], "a")], log_x=True, log_y=True))
    places = [p.split(",") for p in re.search('polyline points="(.*?)"', drawn).group(1).split()]
    x, y = np.array(places, dtype=float).T
    assert np.ptp(np.diff(x)) < 0.2 and np.ptp(np.diff(y)) < 0.2  # a power law is a straight line
    assert ">0.001<" in drawn and ">0.1<" in drawn


def test_the_legend_names_what_has_a_name_in_its_colour():
    figure = Lines("t", "x", "y", [Series([0], [0], NASTY), Series([0], [0], ""), Series([0], [0], "c", colour=4)])
    assert re.findall(r"background:(#\w+)", legend(figure)) == [COLOURS[0], COLOURS[4]]
    assert "&lt;b&gt;" in legend(figure)


def test_hollow_dots_are_hollow_also_behind_a_gap():
    series = Series([0, 1, 2], [0.0, np.nan, 1.0], "a", "marked", hollow=[True, True, False])
    fills = re.findall(r'r="3" fill="(#\w+)"', svg(Lines("t", "", "", [series])))
    assert fills == ["#fff", COLOURS[0]]


def test_the_floor_of_a_logarithmic_axis_is_its_lower_end():
    series = [Series([0, 1, 2], [1.0, 1e-20, 0.5], "a")]
    assert ">0.01<" in svg(Lines("t", "x", "y", series, log_y=True, y_floor=0.01))


def test_dominant_eigenvalues_are_ringed_and_those_near_zero_left_out():
    part = Eigenvalues("M", [2.0, 1e-4, -1.0], [True, False, False])
    drawn = svg(Spectra("layer 0", [part]))
    assert drawn.count('r="1.7"') == 2 and drawn.count('r="5"') == 1
    middle = 152 / 2
    assert f'cx="{middle * (1 + 1 / 1.08):.1f}" cy="{middle:.1f}" r="5"' in drawn


def test_cells_are_darker_the_larger_and_say_their_number():
    drawn = svg(Grid("kappa", [[1.0, -2.0, 0.0]], "layer", "head", signed=True))
    cells = re.findall(r'fill="(#\w+)" fill-opacity="([\d.]+)"><title>(.*?)</title>', drawn)
    assert [colour for colour, _, _ in cells] == [COLOURS[0], COLOURS[1], COLOURS[0]]
    assert [float(opacity) for _, opacity, _ in cells] == [0.53, 1.0, 0.06]
    assert cells[1][2] == "layer 0, head 1: -2" and "darkest 2" in drawn


def test_a_long_jump_is_no_line():
    near, far = [(0.0, 0.0), (0.1, 0.0), (0.2, 0.0)], [(-0.9, 0.0), (0.9, 0.0)]
    assert svg(Tracks("t", [near])).count("<polyline") == 1
    assert svg(Tracks("t", [far])).count("<polyline") == 0
    assert svg(Tracks("t", [near + far])).count("<polyline") == 1


def test_bars_end_at_their_scale():
    drawn = svg(Bars("shares", {"a": 0.5, "b": 2.0, "c": -1.0}))
    assert re.findall(r'width="([\d.]+)" height="14"', drawn) == ["110.0", "220.0", "0.0"]
    assert ">2.00<" in drawn


def test_a_trend_without_numbers_is_nothing():
    assert svg(Trend([None, float("inf")])) == ""
    assert 'aria-label="from 1 to 2"' in svg(Trend([1.0, 2.0]))


def test_what_has_no_svg_is_refused():
    with pytest.raises(InvalidInput, match="cannot draw a PhaseMap as SVG; expected Lines, Spectra, Grid"):
        svg(phase_map())


def test_bands_and_moments_are_drawn_and_named():
    series, told = [Series([1, 10, 100], [1.0, 2.0, 3.0], "a")], {"bands": [Band(1.0, 10.0, "claimed")]}
    for log_x in (False, True):
        figure = Lines("t", "x", "y", series, log_x=log_x, moments={10.0: "exit"}, **told)
        drawn = svg(figure)
        assert BAND in drawn and ">exit<" in drawn and ">claimed<" in legend(figure)


@pytest.mark.parametrize(
    "options", [{"colour": 1}, {"width": -1}, {"width": "wide"}, {"heading": 1}, {"label": None}]
)
def test_options_that_a_figure_does_not_have_are_sentences(options):
    figure = Lines("t", "x", "y", [Series([0.0, 1.0], [1.0, 2.0], "a")])
    with pytest.raises(InvalidInput) as refused:
        svg(figure=figure, **options)
    assert len(str(refused.value)) < 200


def test_a_window_shows_what_lies_inside_it():
    parts = [Eigenvalues("M", [5 + 0j, 4.9 + 0.05j, -3 + 0j], [True, False, False])]
    whole, close = svg(Spectra("all", parts)), svg(Spectra("top", parts, window=(4.95, 0.1)))
    assert whole.count("<circle") == 4 and close.count("<circle") == 3
    assert "4.85" in close and "5.05" in close and "±" not in close
    for wrong in ((1.0,), (1.0, 0.0), (0.0, float("nan")), "ab", 3, (1.0, 2.0, 3.0)):
        with pytest.raises(InvalidInput):
            Spectra("top", parts, window=wrong)


def test_the_value_of_a_cell_shows_under_the_pointer():
    drawn = svg(Grid("map", [[0.25, -1.5]], "layer", "head", signed=True))
    assert drawn.count('class="cell"') == 2 and drawn.count("layer 0, head 1: -1.5") == 2
    assert 'class="label value"' in drawn
