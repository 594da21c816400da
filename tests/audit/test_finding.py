"""Numbers and layers in words."""

from __future__ import annotations

import pytest

from metastable.audit.finding import layers_in_words, listed, percents, span, two_decimals


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([3], "layer 3"),
        ([0, 2, 3, 4, 5], "layers 0 and 2-5"),
        ([1, 2], "layers 1 and 2"),
        ([4, 5, 6], "layers 4-6"),
        ([0, 1, 4, 7, 8, 9], "layers 0, 1, 4 and 7-9"),
        (list(range(12)), "all 12 layers"),
    ],
)
def test_layers_in_words(numbers, words):
    assert layers_in_words(numbers, 12) == words


def test_numbers_in_words():
    assert span([0.123, 4.0, 2.0]) == "0.12 to 4"
    assert percents([0.954, 0.951]) == "95%" and percents([0.0, 0.5]) == "0% to 50%"
    assert two_decimals(-0.001) == "0.00" and two_decimals(0.666) == "0.67"
    assert listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
