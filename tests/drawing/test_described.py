import numpy as np
import pytest
import torch

from metastable.drawing.described import marks, numbers, rows, same_length, words
from metastable.errors import InvalidInput


@pytest.mark.parametrize("row", [[1, 2.5], (1, 2.5), np.array([1, 2.5]), torch.tensor([1, 2.5])])
def test_a_row_of_numbers_in_any_form(row):
    assert numbers(row, "x").tolist() == [1.0, 2.5]


def test_what_is_not_there_is_nan():
    assert np.isnan(numbers([1.0, None], "x")[1]) and numbers([], "x").shape == (0,)
    assert np.isinf(numbers([np.inf], "x")[0])  # a curve may have left the plot


@pytest.mark.parametrize(
    "row", [None, 3, "abc", ["1"], [[1, 2]], [1j], [[1], [2, 3]], [10**400], object(), {1.0}, iter([1.0])]
)
def test_what_is_no_row_of_numbers_is_refused(row):
    with pytest.raises(InvalidInput, match="x must be"):
        numbers(row, "x")


def test_rows_of_a_table():
    assert rows(([1], (2, 3)), "values") == [[1], (2, 3)]
    for wrong in (None, 3, "abc", {"a": 1}):
        with pytest.raises(InvalidInput, match="values must be a sequence"):
            rows(wrong, "values")


def test_lengths_marks_and_words():
    same_length("a", x=2, y=2)
    with pytest.raises(InvalidInput, match="a needs as many of each, got 2 x, 3 y"):
        same_length("a", x=2, y=3)
    marks(None, "ticks")
    marks({1.0: "one"}, "ticks")
    for wrong in (3, {"one": "one"}, {1.0: 1}):
        with pytest.raises(InvalidInput):
            marks(wrong, "ticks")
    with pytest.raises(InvalidInput, match="title of a grid must be words, got 3"):
        words("a grid", title=3)
