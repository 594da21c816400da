"""The page of a comparison: maps only where heads are compared."""

from __future__ import annotations

from metastable.audit import compare
from metastable.audit.compare_page import comparison_page

IDS = [list(range(5 + i, 25 + i)) for i in range(4)]


def test_maps_stand_where_heads_are_compared(tiny):
    page = comparison_page(compare(tiny("bert"), tiny("bert"), IDS))
    assert page.count("<svg") == 5 and "Map of the heads" in page and "sha256" in page
    page = comparison_page(compare(tiny("bert"), tiny("distilbert"), IDS))
    assert "<svg" not in page and "Where these numbers come from" in page
    page = comparison_page(compare(tiny("bert"), tiny("bert")))
    assert "No text was given" in page and page.count("<svg") == 2
