from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from metastable.audit import audit
from metastable.audit.page import report_page, series_page
from metastable.drawing.palette import COLOURS

IDS = [list(range(5, 30)), list(range(40, 20, -1))]
VOID = {"meta", "br"}


@pytest.fixture(scope="module")
def report(tiny):
    return audit(tiny("bert"), IDS, loop_steps=25)


class Nesting(HTMLParser):
    """Refuses a page whose tags do not close in the order in which they opened."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_every_layer_and_head_is_drawn(report):
    page = report_page(report)
    for l in range(3):
        for label in ("spectra of", "energy along the loop,", "trajectories,"):
            assert page.count(f'aria-label="{label} layer {l}"') == 1
    assert page.count("by layer and head") == 6
    assert page.count("layer 1, head 2:") == 12  # under the pointer, and for a screen reader
    for place in ("top of sum A", "top of M0"):
        assert page.count(f'aria-label="spectra of layer 2, {place}"') == 1
    assert "cosine with the truth" in page and "dashed: its control" in page


def test_pages_are_well_formed_and_escape_what_is_no_drawing(report):
    series = series_page(["a<b", "c"], ["It moved & rose."], {"x": [1.0, None]}, [report, report])
    for page in (report_page(report), series):
        parser = Nesting()
        parser.feed(page)
        assert parser.open == []
        assert "&lt;svg" not in page and "<svg" in page
    assert "a&lt;b → c" in series and "It moved &amp; rose." in series


def test_words_have_the_colour_of_their_curves(report):
    page = report_page(report)
    assert '<span class="colour-0">sum A</span>' in page and '<span class="colour-1">M0</span>' in page
    for i in (0, 1):
        assert f".colour-{i} {{ color: {COLOURS[i]}; }}" in page
        assert f'stroke="{COLOURS[i]}"' in page


def test_dominant_pairs_are_ringed(report):
    """One ring for a real dominant eigenvalue, two for a complex pair."""
    layers = report.weights.layers
    tops = [z for l in layers for z in (l.top_sum_values, l.top_sum_products)]
    whole = re.findall(r'<svg [^>]*aria-label="spectra of layer \d"[^>]*>.*?</svg>', report_page(report))
    assert len(whole) == 3
    rings = sum(drawn.count('r="5" fill="none"') for drawn in whole)
    assert rings == sum(1 + (abs(z.imag) > 1e-9) for z in tops)


def test_a_series_shows_every_layer_and_what_has_no_number(report):
    page = series_page(["a", "b"], [], {"known": [1.0, 2.0], "unknown": [None, None]}, [report, report])
    assert page.count("dominant eigenvalues along the series") == 3
    assert re.search(r"<td>unknown</td><td></td><td>–</td><td>–</td>", page)
    assert re.search(r'<td>known</td><td><svg class="spark"', page)
