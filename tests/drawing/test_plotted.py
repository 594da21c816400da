from dataclasses import replace

import numpy as np
import pytest

from metastable.drawing import Band, Lines, Portrait, Series, interactive
from metastable.drawing.palette import COLOURS, PHASES
from metastable.drawing.plotted import MAX_FRAMES, MAX_TOKENS, plot_html
from metastable.errors import InvalidInput
from sample_figures import SPECTRA, figures, lines, maps, phase_map, portrait


def test_curves_keep_their_numbers_styles_and_labels():
    drawn = lines()
    plot = interactive(drawn)
    assert [trace.name for trace in plot.data] == [one.label for one in drawn.series]
    for trace, one in zip(plot.data, drawn.series, strict=True):
        assert list(trace.x) == list(one.x) and list(trace.y) == list(one.y)
    modes = {one.style: trace.mode for trace, one in zip(plot.data, drawn.series, strict=True)}
    assert modes["points"] == "markers" and modes["marked"] == "lines+markers" and modes["dashed"] == "lines"
    assert plot.layout.xaxis.type == plot.layout.yaxis.type == "log"
    assert plot.layout.yaxis.range[0] == pytest.approx(np.log10(0.5))


def test_error_bars_are_those_of_the_series():
    series = [Series([0, 1], [1.0, 2.0], "a", "points", error=np.array([0.5, 0.25])), Series([0, 1], [1, 2], "b")]
    barred, plain = interactive(Lines("t", "x", "y", series)).data
    assert list(barred.error_y.array) == [0.5, 0.25] and plain.error_y.array is None


def test_bands_and_moments_stand_behind_the_curves():
    series = [Series([0, 1, 2], [1.0, 2.0, 3.0], "a")]
    plot = interactive(Lines("t", "x", "y", series, bands=[Band(0.0, 1.5, "claimed")], moments={1.0: "exit"}))
    band, moment = plot.layout.shapes
    assert (band.x0, band.x1, band.name, band.layer) == (0.0, 1.5, "claimed", "below")
    assert moment.x0 == moment.x1 == 1.0 and plot.layout.annotations[0].text == "exit"


def test_what_is_not_a_number_is_a_gap_and_colours_are_the_palette_s():
    series = [Series([0, 1, 2], [1.0, np.nan, np.inf], "a"), Series([0], [1], "", colour=5)]
    plot = interactive(Lines("t", "x", "y", series, y_ticks={1.0: "one", 5.0: "five"}))
    first, second = plot.data
    assert plot.layout.yaxis.ticktext == ("one", "five") and plot.layout.yaxis.autorangeoptions.include == (
        1.0,
        5.0,
    )
    assert first.y == (1.0, None, None) and first.line.color == COLOURS[0]
    assert second.line.color == COLOURS[5] and second.showlegend is False


def test_phases_are_named_cell_by_cell():
    heat = interactive(phase_map()).data[0]
    assert heat.customdata[0].tolist() == ["initial", "concentrated", "terminal"]
    assert list(heat.y) == ["4", "16"]


@pytest.mark.parametrize(("d", "axes"), [(2, 1), (3, 1), (5, 0)])
def test_a_portrait_has_its_frames_its_globe_and_its_axes(d, axes):
    drawn = portrait(d)
    plot = interactive(drawn)
    assert len(plot.frames) == 2 and len(plot.data) == 2 + axes
    if d <= 3:
        assert plot.data[2].line.color == PHASES[2]
        assert np.allclose(plot.frames[1].data[0].x, drawn.points[1, :, 0], atol=5e-5)
    assert len(plot.layout.sliders[0].steps) == 2


def test_a_large_portrait_is_thinned():
    x = np.tile(np.eye(3), (700, 1))[None].repeat(100, 0)
    plot = interactive(Portrait("Many", np.arange(100.0), x, np.full(2100, 1 / 2100)))
    assert len(plot.frames) <= MAX_FRAMES and plot.frames[-1].data[0].x is not None
    assert len(plot.data[0].x) <= MAX_TOKENS


def test_dominant_eigenvalues_are_filled():
    dominant, rest = interactive(SPECTRA).data
    assert (dominant.x, dominant.marker.symbol) == ((2.0,), "circle")
    assert (rest.y, rest.marker.symbol) == ((1.0, -1.0), "circle-open")


@pytest.mark.parametrize("name", figures())
def test_a_piece_of_a_page_does_not_bring_plotly_with_it(name):
    piece = plot_html(figures()[name])
    assert "plotly-graph-div" in piece and len(piece) < 200_000 and "<html" not in piece


def test_what_cannot_be_plotted_is_refused():
    with pytest.raises(
        InvalidInput, match="cannot draw a str; expected Lines, PhaseMap, Maps, Portrait or Spectra"
    ):
        interactive("nonsense")


def test_panels_of_maps_share_one_scale_of_colours():
    plot = interactive(maps())
    heat = [trace for trace in plot.data if trace.type == "heatmap"]
    assert len(heat) == 4 and {trace.coloraxis for trace in heat} == {"coloraxis"}
    assert (plot.layout.coloraxis.cmin, plot.layout.coloraxis.cmax) == (-2.0, 2.0)
    assert sum(trace.type == "scatter" for trace in plot.data) == 4


def test_numbers_without_a_sign_have_a_scale_from_zero():
    drawn = replace(maps(), signed=False)
    axis = interactive(drawn).layout.coloraxis
    assert (axis.cmin, axis.cmax) == (0.0, 2.0)
    assert axis.colorscale != interactive(maps()).layout.coloraxis.colorscale
