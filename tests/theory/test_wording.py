import json
import math

import numpy as np

import metastable as ms
from metastable.theory import forecast
from metastable.theory.wording import finite, number, within

C = ms.AttentionWeights(V=np.diag([1.0, 2.0]), B=np.diag([4.0, 1.0]))


def test_numbers_in_digits_or_in_words():
    assert [number(x) for x in (0.123456, math.inf, math.nan)] == ["0.1235", "never", "undefined"]
    assert number(math.inf, "none") == "none"
    record = finite({"a": [1.0, math.inf, (math.nan, "text")], "b": None})
    assert json.dumps(record, allow_nan=False) == '{"a": [1.0, null, [null, "text"]], "b": null}'


def test_the_row_of_the_exit_says_what_ends_the_phase_and_how_well_that_is_known():
    f = forecast(C, 100.0, ms.sphere.uniform(600, 2))
    _, value, meaning = next(row for row in f.table() if row[0] == "t exit")
    assert value.startswith(number(f.times.exit)) and within(f.times).strip() in value
    assert meaning.startswith("clusters follow V") and "never" not in value + meaning
    stays = forecast(ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=np.eye(2)), 64.0, ms.sphere.equispaced(100))
    _, value, meaning = next(row for row in stays.table() if row[0] == "t exit")
    assert value == "never" and meaning.startswith("never: ") and within(stays.times) == ""
