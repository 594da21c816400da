import re

from metastable.drawing import Series
from metastable.drawing.palette import COLOURS, PHASES, TERMINAL_VERDICTS, VERDICTS, colour_of, shade


def luminance(colour: str) -> float:
    """Relative luminance of WCAG 2.1, https://www.w3.org/TR/WCAG21/#dfn-relative-luminance."""
    linear = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in linear]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_are_six_digits_and_no_two_alike():
    assert len(set(COLOURS)) == len(COLOURS)
    assert all(re.fullmatch("#[0-9a-f]{6}", c) for c in (*COLOURS, *PHASES, *VERDICTS.values()))


def test_words_in_the_colour_of_a_verdict_are_readable_on_white():
    assert VERDICTS.keys() == TERMINAL_VERDICTS.keys()
    for colour in VERDICTS.values():
        assert 1.05 / (luminance(colour) + 0.05) >= 4.5  # the contrast that WCAG asks of text


def test_the_scale_darkens_and_stays_within_its_ends():
    scale = [luminance(shade(i / 10)) for i in range(11)]
    assert scale == sorted(scale, reverse=True)
    assert shade(-1.0) == shade(0.0) and shade(2.0) == shade(1.0)


def test_a_series_has_the_colour_of_its_place_unless_it_says_otherwise():
    assert colour_of(Series([], [], ""), 1) == COLOURS[1]
    assert colour_of(Series([], [], ""), 1 + len(COLOURS)) == COLOURS[1]
    assert colour_of(Series([], [], "", colour=3), 1) == COLOURS[3]
    assert colour_of(Series([], [], "", shade=0.5, colour=3), 1) == shade(0.5)
