import math

import pytest

from metastable.errors import InvalidInput
from metastable.papers import Outcome, Setting, examine, verify
from metastable.papers.own_error import CHANCE, OwnError, with_systematic


def claim(outcome):
    return OwnError(
        "mean",
        "It is one.",
        lambda setting: outcome,
        expected=1.0,
        reason="the steps",
        source="arithmetic",
        rivals={"two": "It is two."},
    )


@pytest.mark.parametrize(
    ("measured", "error", "systematic", "verdict"),
    [
        (1.29, 0.1, 0.0, "holds"),
        (1.31, 0.1, 0.0, "inconclusive"),
        (1.71, 0.1, 0.0, "fails"),
        (1.39, 0.1, -0.1, "holds"),
        (1.05, 0.0, 0.1, "holds"),
        (1.2, 0.0, 0.1, "fails"),
        (math.nan, 0.0, 0.0, "inconclusive"),
    ],
)
def test_the_tolerance_is_the_error_of_the_run(measured, error, systematic, verdict):
    """Three standard errors and the systematic one, by two standard errors to be sure of it."""
    outcome = with_systematic(Outcome(measured, error, rivals={"two": 3.0}), systematic)
    found = claim(outcome).judge(outcome)
    assert found.verdict == verdict and found.tolerance == pytest.approx(CHANCE * error + abs(systematic))


def test_the_reason_gives_both_errors():
    outcome = with_systematic(Outcome(1.0, 0.01, rivals={"two": 2.0}), 0.02)
    verdict = examine(claim(outcome), Setting())
    assert verdict.reason == "5 standard errors of this run, 0.01 each, and 0.02 for the steps" and verdict.holds
    assert examine(claim(Outcome(1.0, rivals={"two": 2.0}))).reason == "the steps"


def test_an_error_that_hides_a_rival_decides_nothing():
    outcome = with_systematic(Outcome(1.0, 0.01, rivals={"two": 2.0}), 1.2)
    verdict = claim(outcome).judge(outcome)
    assert verdict.verdict == "inconclusive" and "does not exclude 'two'" in verdict.note


@pytest.mark.parametrize("value", [None, "3", math.nan, math.inf, [1.0], 10**400])
def test_malformed_errors_are_refused(value):
    with pytest.raises(InvalidInput) as refused:
        with_systematic(Outcome(1.0), value)
    assert len(str(refused.value)) < 200
    with pytest.raises(InvalidInput):
        with_systematic(value, 0.1)
    with pytest.raises(InvalidInput):
        claim(Outcome(1.0)).judge(value)


def test_a_stored_outcome_is_judged_alike(tmp_path):
    one = claim(with_systematic(Outcome(1.0, 0.01, rivals={"two": 2.0}), 0.02))
    (first,), (again,) = (verify([one], out=tmp_path, jobs=1) for _ in range(2))
    assert again.resumed and (again.tolerance, again.reason) == (first.tolerance, first.reason)
