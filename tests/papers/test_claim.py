import json
import math

import numpy as np
import pytest

from metastable.errors import InvalidInput
from metastable.papers import Claim, Outcome
from metastable.papers.claim import as_rows
from sample_claims import COUNTED, FIELDS, counted


@pytest.mark.parametrize(
    ("relation", "measured", "error", "verdict"),
    [
        ("equal", 1.05, 0.0, "holds"),
        ("equal", 0.8, 0.0, "fails"),
        ("equal", 0.8, 0.06, "inconclusive"),
        ("equal", 0.7, 0.06, "fails"),
        ("equal", 1.0, 0.2, "inconclusive"),
        ("equal", math.nan, 0.0, "inconclusive"),
        ("at most", 0.2, 0.0, "holds"),
        ("at most", 1.11, 0.0, "fails"),
        ("at least", 5.0, 0.0, "holds"),
        ("at least", 0.85, 0.0, "fails"),
    ],
)
def test_judgement(relation, measured, error, verdict):
    claim = Claim("c", "s", counted, 1.0, relation=relation, **FIELDS)
    result = claim.judge(Outcome(measured, uncertainty=error))
    assert result.verdict == verdict
    assert result.holds is (verdict == "holds")
    assert result.fails is (verdict == "fails")
    assert result.sign == {"equal": "", "at most": "≤ ", "at least": "≥ "}[relation]


def test_relative_tolerance_is_a_fraction_of_what_is_expected():
    claim = Claim("c", "s", counted, -20.0, relative=True, **FIELDS)
    assert claim.judge(Outcome(-21.9)).holds
    assert claim.judge(Outcome(-22.1)).verdict == "fails"
    assert claim.judge(Outcome(-21.9)).tolerance == pytest.approx(2.0)


def test_bad_claims_are_refused():
    with pytest.raises(InvalidInput, match="relation must be one of equal, at most, at least, got 'near'"):
        Claim("c", "s", counted, 1.0, relation="near", **FIELDS)
    with pytest.raises(InvalidInput, match="tolerance of claim 'c' must be >= 0, got -1"):
        Claim("c", "s", counted, 1.0, **FIELDS | {"tolerance": -1})


def test_a_verdict_draws_what_was_measured_and_nothing_when_there_are_no_curves():
    assert COUNTED.judge(Outcome(1.0, curves={"x": np.ones(2)})).figure.series[0].y.tolist() == [1.0, 1.0]
    assert COUNTED.judge(Outcome(1.0)).figure is None


def test_a_verdict_is_plain_for_json():
    outcome = Outcome(np.float64(math.inf), table=[{"n": np.int64(3), "value": math.nan}])
    plain = json.loads(json.dumps(COUNTED.judge(outcome).to_dict(), allow_nan=False))
    assert plain["measured"] is None and plain["table"] == [{"n": 3, "value": None}]
    assert plain["holds"] is False and "figure" not in plain


def test_columns_become_rows():
    assert as_rows({"n": np.array([1, 2]), "error": [0.5, 0.25]}) == [
        {"n": 1, "error": 0.5},
        {"n": 2, "error": 0.25},
    ]
    assert type(as_rows({"n": np.array([1])})[0]["n"]) is int
    with pytest.raises(ValueError, match="zip"):
        as_rows({"a": [1, 2], "b": [1]})
