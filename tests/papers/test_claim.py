import json
import math

import numpy as np
import pytest

from metastable.errors import InvalidInput
from metastable.papers import Claim, Outcome, Setting
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
        ("equal", 1.05, 0.02, "holds"),
        ("equal", 1.05, 0.03, "inconclusive"),
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
    with pytest.raises(InvalidInput, match="unknown relation 'near'; choose from equal, at most, at least"):
        Claim("c", "s", counted, 1.0, relation="near", **FIELDS)
    with pytest.raises(InvalidInput, match="tolerance of claim 'c' must be >= 0, got -1"):
        Claim("c", "s", counted, 1.0, **FIELDS | {"tolerance": -1})


def test_words_and_tolerance_are_those_of_the_run():
    claim = Claim(
        "c",
        lambda setting: f"On {setting.choose(2, 5)} points.",
        counted,
        1.0,
        lambda setting: setting.choose(0.5, 0.1),
        lambda setting: f"{setting.choose(2, 5)} points",
        "test",
    )
    full, quick = claim.judge(Outcome(1.2)), claim.judge(Outcome(1.2), setting=Setting(quick=True))
    assert (full.statement, full.reason, full.tolerance, full.holds) == ("On 5 points.", "5 points", 0.1, False)
    assert (quick.statement, quick.reason, quick.tolerance, quick.holds) == ("On 2 points.", "2 points", 0.5, True)


def test_a_small_run_is_smaller_than_a_quick_one():
    assert [Setting(**size).choose(2, 3, 1) for size in ({"small": True}, {"quick": True}, {})] == [1, 2, 3]
    assert Setting(small=True).choose(2, 3) == 2


def test_a_figure_that_cannot_be_drawn_does_not_cost_the_verdict():
    claim = Claim("c", "s", counted, 1.0, figure=lambda outcome: outcome.curves["y"], **FIELDS)
    verdict = claim.judge(Outcome(1.0, curves={"x": np.ones(2)}))
    assert verdict.holds and verdict.figure is None
    assert verdict.warnings == ("the figure could not be drawn: KeyError: \"'y'\"",)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"name": "a/b"}, "name of a claim must be up to 80 letters"),
        ({"name": None}, "name of a claim must be up to 80 letters"),
        ({"statement": 3}, "statement of claim 'c' must be words, got 3"),
        ({"experiment": "run"}, "experiment must be a function"),
        ({"expected": math.nan}, "expected must be finite"),
        ({"expected": np.ones(2)}, "expected must be a number"),
        ({"tolerance": "1"}, "tolerance of claim 'c' must be a number"),
        ({"source": None}, "source of claim 'c' must be words, got None"),
        ({"relative": 1}, "relative must be True or False"),
        ({"effort": -1}, "effort must be >= 0"),
        ({"figure": 3}, "figure must be a function"),
        ({"rivals": ["a"]}, "rivals of claim 'c' must be a dictionary by names"),
        ({"rivals": {"a": 1}}, "rival 'a' must be a sentence"),
        ({"open": None}, "open of claim 'c' must be words"),
    ],
)
def test_a_malformed_claim_is_refused_at_construction(change, sentence):
    fields = {"name": "c", "statement": "s", "experiment": counted, "expected": 1.0, **FIELDS}
    with pytest.raises(InvalidInput, match=sentence):
        Claim(**fields | change)


@pytest.mark.parametrize(
    "change",
    [
        {"measured": None}, {"measured": "1"}, {"measured": [1.0]}, {"measured": 10**400}, {"measured": 1j},
        {"uncertainty": -1.0}, {"uncertainty": None}, {"curves": [1]}, {"curves": {"x": [1.0]}},
        {"curves": {"x": np.array(["a"])}}, {"curves": {3: np.ones(1)}}, {"table": {"a": 1}}, {"table": [1]},
        {"table": [{"a": object()}]}, {"table": [{1: 2}]}, {"note": 3}, {"inconclusive": None}, {"stopped": 1},
        {"rivals": {"a": "b"}}, {"rivals": {"a": (1.0, -1.0)}}, {"rivals": {"a": (1.0, 2.0, 3.0)}},
        {"rivals": None}, {"warnings": "one"}, {"warnings": [1]},
    ],
)  # fmt: skip
def test_a_malformed_outcome_is_refused_at_construction(change):
    with pytest.raises(InvalidInput) as refused:
        Outcome(**{"measured": 1.0} | change)
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


@pytest.mark.parametrize("change", [{"quick": 1}, {"seed": -1}, {"seed": 2**63}, {"seed": 1.0}, {"small": None}])
def test_a_malformed_setting_is_refused(change):
    with pytest.raises(InvalidInput):
        Setting(**change)


def test_only_outcomes_are_judged():
    for outcome in (None, 1.0, "holds"):
        with pytest.raises(InvalidInput, match="outcome must be an Outcome"):
            COUNTED.judge(outcome)
    with pytest.raises(InvalidInput, match="setting must be a Setting"):
        COUNTED.judge(Outcome(1.0), setting=3)


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
