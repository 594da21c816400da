"""The door for arguments: what passes, what is refused, and that every refusal is one short line."""

import itertools
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fuzz.doors import Hostile
from metastable import arguments
from metastable.errors import InvalidInput

STRANGE = [
    None, True, "3", b"3", 1j, [], [1.0], [[1.0]], {}, {"a": 1}, {1}, object(), Hostile(), np.zeros(0), np.zeros(2),
    np.zeros((2, 2)), torch.zeros(2), torch.zeros(1), np.array(1j), np.array("a"), torch.tensor(1j), int, print,
    10**400, math.nan, "x" * 5000, list(range(10**4)), float, Path("x"),
]  # fmt: skip


@pytest.mark.parametrize(
    "check",
    [
        lambda v: arguments.number(v, "beta", least=0.0),
        lambda v: arguments.number(v, "beta", above=0.0, below=2.0, finite=False),
        lambda v: arguments.integer(v, "n", least=1, most=9),
        lambda v: arguments.flag(v, "quick"),
        lambda v: arguments.choice(v, "metric", ("chordal", "geodesic")),
        lambda v: arguments.instance(v, "flow", Path, "a Path"),
        lambda v: arguments.function(v, "density"),
        lambda v: arguments.sequence(v, "events", Path, "paths"),
        lambda v: arguments.numbers(v, "times", least=0.0, increasing=True),
        lambda v: arguments.place(v, "out"),
        lambda v: arguments.names(v, "claims"),
    ],
)
def test_whatever_comes_passes_or_is_refused_in_one_short_line(check):
    sentences = []
    for value in STRANGE:
        try:
            check(value)
        except InvalidInput as error:
            sentences.append(str(error))
    assert len(sentences) >= len(STRANGE) // 2
    assert all("\n" not in sentence and len(sentence) < 200 for sentence in sentences)


@pytest.mark.parametrize(
    "value", [2, 2.0, np.float32(2), np.int8(2), torch.tensor(2.0), np.array(2.0), Fraction(2), Decimal(2)]
)
def test_a_number_is_anything_that_holds_one(value):
    assert arguments.number(value, "beta") == 2.0


@pytest.mark.parametrize(
    ("options", "value", "sentence"),
    [
        ({"least": 0.0}, -1.0, "beta must be >= 0, got -1.0"),
        ({"above": 0.0}, 0, "beta must be > 0, got 0"),
        ({"above": 0.0, "most": 1.0}, 2.0, "beta must be > 0 and <= 1, got 2.0"),
        ({}, math.inf, "beta must be finite, got inf"),
        ({"least": 0.0}, math.nan, "beta must be finite and >= 0, got nan"),
        ({}, 10**400, "beta must fit into a float"),
        ({"least": 0.0}, [1, 2], "beta must be a number that is >= 0, got [1, 2]"),
        ({}, True, "beta must be a number, got True"),
        ({}, np.zeros(3), "beta must be a number, got an array of shape (3,)"),
    ],
)
def test_the_sentence_names_the_value_and_what_was_expected(options, value, sentence):
    with pytest.raises(InvalidInput) as refused:
        arguments.number(value, "beta", **options)
    assert str(refused.value).startswith(sentence)


def test_infinity_passes_where_it_is_allowed_and_nan_does_not():
    assert arguments.number(math.inf, "level", finite=False) == math.inf
    with pytest.raises(InvalidInput, match="level must be finite, got nan"):
        arguments.number(math.nan, "level", finite=False)


def test_integers_names_flags_and_places():
    assert arguments.integer(torch.tensor(3), "n") == 3
    assert arguments.flag(np.True_, "quick") is True
    assert arguments.choice("geodesic", "metric", ("chordal", "geodesic")) == "geodesic"
    assert arguments.place(Path("a") / "b", "out") == str(Path("a") / "b")
    assert arguments.names(["a", "b"], "claims") == ("a", "b")
    assert arguments.sequence((), "events", Path, "paths") == ()
    with pytest.raises(InvalidInput, match=r"n must be an integer, got 1\.5"):
        arguments.integer(1.5, "n")
    with pytest.raises(InvalidInput, match="unknown metric 'taxi'; choose from chordal, geodesic"):
        arguments.choice("taxi", "metric", ("chordal", "geodesic"))
    with pytest.raises(InvalidInput, match="claims must be a sequence of names, got 'abc'"):
        arguments.names("abc", "claims")
    with pytest.raises(InvalidInput, match="events must be a sequence of paths, got 3 at place 1"):
        arguments.sequence([Path("a"), 3], "events", Path, "paths")


def test_rows_of_numbers():
    assert arguments.numbers(np.array([1, 2]), "times") == [1.0, 2.0]
    assert arguments.numbers(range(3), "times", increasing=True, length=3) == [0.0, 1.0, 2.0]
    for value, words in (
        ([[1.0]], "one row"), ([1, "a"], "numbers in one row"), ([1, 1j], "numbers in one row"),
        ([2, 1], "strictly increasing"),
        ([math.nan], "finite"), ([-1.0], ">= 0"), ([0.0, 1.0, 2.0, 3.0], "hold 3 numbers, got 4"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=words):
            arguments.numbers(value, "times", least=0.0, increasing=True, length=3 if "hold" in words else None)


@given(
    st.one_of(
        st.text(),
        st.binary(),
        st.lists(st.integers()),
        st.dictionaries(st.text(), st.floats()),
        st.complex_numbers(),
    )
)
def test_a_shown_value_is_one_short_line(value):
    text = arguments.shown(value)
    assert len(text) <= arguments.LONGEST
    assert "\n" not in text


def test_what_never_ends_and_what_has_no_shape_is_refused():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(1)])
    with pytest.raises(InvalidInput, match="must be a sequence of names, got count"):
        arguments.names(itertools.count(), "names")
    with pytest.raises(InvalidInput, match="times must be numbers in one row"):
        arguments.numbers(itertools.count(), "times")
    with pytest.raises(InvalidInput, match="times must be numbers in one row, got range"):
        arguments.numbers(range(10**12), "times")
    with pytest.raises(InvalidInput, match="flow must be a Flow, got Tensor"):
        arguments.instance(nested, "flow", int, "a Flow")
    assert arguments.shape(nested) is None


def test_long_places_are_told_by_their_end():
    assert arguments.told("a/b.zarr") == "'a/b.zarr'"
    assert arguments.told("x" * 500 + "/b.zarr").endswith("/b.zarr'") and len(arguments.told("x" * 500)) < 90
