import json

import pytest
import torch

from metastable.errors import InvalidInput
from metastable.papers import Claim, verdicts, verify
from sample_claims import BROKEN, COUNTED, FIELDS, threads


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
