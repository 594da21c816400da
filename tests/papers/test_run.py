import json

import pytest
import torch

from metastable.errors import InvalidInput
from metastable.papers import Claim, Setting, examine, verdicts, verify
from sample_claims import BROKEN, COUNTED, FIELDS, RIVALLED, WARNED, threads


def test_an_experiment_that_raises_is_inconclusive_and_says_why():
    (verdict,) = verify([BROKEN], jobs=1)
    assert verdict.verdict == "inconclusive" and not verdict.holds
    assert "ZeroDivisionError: one by zero" in verdict.note
    assert json.loads(json.dumps(verdict.to_dict()))["measured"] is None


def test_an_interrupted_run_keeps_what_was_finished(tmp_path, marks):
    run = verdicts([COUNTED, BROKEN], out=tmp_path, jobs=1)
    next(run)
    run.close()
    assert [v.resumed for v in verify([COUNTED], out=tmp_path, jobs=1)] == [True] and marks() == 1


def test_processes_have_one_thread_each_and_this_one_keeps_its_own(tmp_path):
    before = torch.get_num_threads()
    claims = [Claim(name, "s", threads, 1.0, **FIELDS) for name in ("a", "b")]
    result = verify(claims, jobs=2, out=tmp_path)
    assert [v.claim for v in result] == ["a", "b"]
    assert [v.measured for v in result] == [1.0, 1.0]
    assert torch.get_num_threads() == before
    assert all(v.resumed for v in verify(claims, jobs=2, out=tmp_path))


def test_unknown_names_and_no_processes_are_refused():
    with pytest.raises(InvalidInput, match="unknown paper 'nonsense'; choose from concentration"):
        verify("nonsense")
    with pytest.raises(InvalidInput, match="unknown claim 'x'; choose from counted"):
        verify([COUNTED], claims=["x"])
    with pytest.raises(InvalidInput, match="jobs must be >= 1, got 0"):
        verify([COUNTED], jobs=0)


@pytest.mark.parametrize(
    "arguments",
    [
        {"paper": None}, {"paper": [1]}, {"paper": {}}, {"paper": 3.0}, {"quick": 1}, {"quick": None}, {"out": 3},
        {"out": ""}, {"claims": "counted"}, {"claims": [1]}, {"jobs": 1.5}, {"jobs": None}, {"jobs": [2]},
        {"progress": "yes"}, {"seed": -1}, {"seed": 10**400}, {"seed": None}, {"paper": [COUNTED, COUNTED]},
    ],
)  # fmt: skip
def test_malformed_arguments_are_sentences_before_anything_runs(arguments, marks):
    with pytest.raises(InvalidInput) as refused:
        verify(**{"paper": [COUNTED], "jobs": 1} | arguments)
    assert len(str(refused.value)) < 200 and marks() == 0
    given = {key: value for key, value in arguments.items() if key != "progress"}
    if given:
        with pytest.raises(InvalidInput):
            verdicts(**{"paper": [COUNTED], "jobs": 1} | given)


def test_what_an_experiment_is_warned_of_is_in_its_verdict_stored_or_not(tmp_path):
    for resumed in (False, True):
        (verdict,) = verify([WARNED], out=tmp_path, jobs=1)
        assert verdict.resumed is resumed and verdict.holds
        assert verdict.warnings == ("UserWarning: twice said (2 times)", "RuntimeWarning: said once")


def test_rivals_are_stored_and_judged_again(tmp_path):
    for resumed in (False, True):
        (verdict,) = verify([RIVALLED], out=tmp_path, jobs=1)
        assert verdict.resumed is resumed and verdict.holds
        assert [(r.name, r.measured, r.uncertainty) for r in verdict.rivals] == [
            ("two", 2.0, 0.1),
            ("inf", float("inf"), 0.0),
        ]


def test_one_claim_alone():
    assert examine(RIVALLED).holds and examine(RIVALLED, Setting(small=True)).holds
    assert examine(BROKEN).stopped
    with pytest.raises(InvalidInput, match="claim must be a Claim"):
        examine("concentration")
    with pytest.raises(InvalidInput, match="setting must be a Setting"):
        examine(RIVALLED, "quick")


def test_an_experiment_that_gives_no_outcome_is_inconclusive():
    (verdict,) = verify([Claim("c", "s", lambda setting: 3.0, 1.0, **FIELDS)], jobs=1)
    assert verdict.stopped and "it gave 3.0, not an Outcome" in verdict.note
