from dataclasses import replace

import pytest

from metastable.drawing import Band, Lines, Series, Trend, draw
from metastable.errors import InvalidInput
from sample_figures import figures, maps


@pytest.mark.parametrize("name", figures())
def test_every_figure_of_a_claim_is_printed_as_png_and_pdf(tmp_path, name):
    png, pdf = draw(figures()[name], tmp_path / "figure")
    assert png.read_bytes()[:4] == b"\x89PNG" and png.stat().st_size > 5000
    assert pdf.read_bytes()[:4] == b"%PDF"


def test_marks_and_hollow_dots_are_drawn(tmp_path):
    """Every part of the description changes the picture."""
    series = Series([0, 1, 2], [1, 3, 2], "a", "marked")
    hollow = Series([0, 1, 2], [1, 3, 2], "a", "marked", hollow=[True, False, True])
    unnamed = Series([0, 1, 2], [1, 3, 2], "", "marked")
    barred = Series([0, 1, 2], [1, 3, 2], "a", "marked", error=[0.5, 0.2, 0.1])
    pictures = {
        draw(Lines("t", "x", "y", [one], x_ticks=ticks), tmp_path / "x.png")[0].read_bytes()
        for one in (series, hollow, unnamed, barred)
        for ticks in (None, {0.0: "first", 2.0: "last"})
    }
    assert len(pictures) == 8
    told = [{}, {"bands": [Band(0.0, 1.0, "claimed")]}, {"moments": {1.5: "exit"}}]
    told.append(told[1] | told[2])
    shaded = {draw(Lines("t", "x", "y", [series], **more), tmp_path / "x.png")[0].read_bytes() for more in told}
    assert len(shaded) == 4


@pytest.mark.parametrize("figure", ["nonsense", Trend([1.0])])
def test_what_cannot_be_printed_is_refused(tmp_path, figure):
    expected = f"cannot draw a {type(figure).__name__}; expected Lines, PhaseMap, Maps, Portrait or Spectra"
    with pytest.raises(InvalidInput, match=expected):
        draw(figure, tmp_path / "x.png")


def test_numbers_with_and_without_a_sign_are_drawn_on_different_scales(tmp_path):
    pictures = {draw(replace(maps(), signed=s), tmp_path / "x.png")[0].read_bytes() for s in (True, False)}
    assert len(pictures) == 2
