import json
import math
import os

import numpy as np
import pytest
import torch
import typer

from metastable.cli.verify import leave
from metastable.errors import InvalidInput
from metastable.papers import Claim, Finding, Lines, Series, Setting, select, store, verdicts, verify

FIELDS = {"tolerance": 0.1, "reason": "test", "source": "test"}


def counted(setting: Setting) -> Finding:
    """Leaves a mark in the folder named by the environment, so that runs can be counted across processes."""
    folder = os.environ["METASTABLE_TEST_MARKS"]
    with open(os.path.join(folder, "marks"), "a") as file:
        file.write("x")
    return Finding(1.0, curves={"x": np.arange(3.0)}, table=[{"n": np.int64(3)}], note="fine")


def threads(setting: Setting) -> Finding:
    return Finding(float(torch.get_num_threads()))


def broken(setting: Setting) -> Finding:
    raise ZeroDivisionError("one by zero")


def drawn(finding: Finding) -> Lines:
    return Lines("t", "x", "y", [Series(finding.curves["x"], finding.curves["x"], "a")])


COUNTED = Claim("counted", "It counts.", counted, 1.0, figure=drawn, **FIELDS)


@pytest.fixture
def marks(tmp_path, monkeypatch):
    monkeypatch.setenv("METASTABLE_TEST_MARKS", str(tmp_path))
    return lambda: len((tmp_path / "marks").read_text()) if (tmp_path / "marks").exists() else 0


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
    result = claim.judge(Finding(measured, uncertainty=error))
    assert result.verdict == verdict
    assert result.holds is (verdict == "holds")


def test_relative_tolerance_is_a_fraction_of_what_is_expected():
    claim = Claim("c", "s", counted, -20.0, relative=True, **FIELDS)
    assert claim.judge(Finding(-21.9)).holds
    assert claim.judge(Finding(-22.1)).verdict == "fails"
    assert claim.judge(Finding(-21.9)).tolerance == pytest.approx(2.0)


def test_an_experiment_that_raises_is_inconclusive_and_says_why():
    (verdict,) = verify([Claim("b", "s", broken, 1.0, **FIELDS)], jobs=1)
    assert verdict.verdict == "inconclusive" and not verdict.holds
    assert "ZeroDivisionError: one by zero" in verdict.note
    assert json.loads(json.dumps(verdict.to_dict()))["measured"] is None


def test_finished_claims_are_stored_and_not_run_again(tmp_path, marks):
    out = tmp_path / "out"
    (first,) = verify([COUNTED], out=out, jobs=1)
    (second,) = verify([COUNTED], out=out, jobs=1)
    assert marks() == 1
    assert (first.resumed, second.resumed) == (False, True)
    assert second.figure.series[0].y.tolist() == [0.0, 1.0, 2.0]
    assert second.table == ({"n": 3},) and second.note == "fine" and second.seconds == first.seconds
    verify([COUNTED], out=out, jobs=1, seed=1)
    verify([COUNTED], out=out, jobs=1, seed=1, quick=True)
    assert marks() == 3


def test_a_stored_finding_is_judged_by_the_claim_as_it_is_now(tmp_path, marks):
    verify([COUNTED], out=tmp_path, jobs=1)
    (verdict,) = verify([Claim("counted", "s", counted, 2.0, **FIELDS)], out=tmp_path, jobs=1)
    assert marks() == 1 and verdict.verdict == "fails"


@pytest.mark.parametrize("damage", ["json", "npz"])
def test_a_damaged_store_is_computed_again(tmp_path, marks, damage):
    verify([COUNTED], out=tmp_path, jobs=1)
    (tmp_path / "claims" / f"counted.{damage}").write_text("{")
    (verdict,) = verify([COUNTED], out=tmp_path, jobs=1)
    assert marks() == 2 and verdict.holds


def test_an_interrupted_run_keeps_what_was_finished(tmp_path, marks):
    run = verdicts([COUNTED, Claim("b", "s", broken, 1.0, effort=0.5, **FIELDS)], out=tmp_path, jobs=1)
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


def test_unknown_names_are_answered_with_the_valid_ones():
    with pytest.raises(InvalidInput, match="unknown paper 'nonsense'; choose from concentration"):
        verify("nonsense")
    with pytest.raises(InvalidInput, match="unknown claim 'x'; choose from counted"):
        select([COUNTED], ["x"])
    with pytest.raises(InvalidInput, match="jobs must be >= 1, got 0"):
        verify([COUNTED], jobs=0)


def test_an_experiment_that_stops_is_not_a_success():
    """A claim that holds does not make up for one whose experiment broke off."""
    found = verify([Claim("t", "s", threads, 1.0, **FIELDS), Claim("b", "s", broken, 1.0, **FIELDS)], jobs=1)
    assert [v.stopped for v in found] == [False, True]
    with pytest.raises(typer.Exit):
        leave(found)
    leave(found[:1])


def test_a_changed_engine_is_another_key(monkeypatch):
    """A stored verdict is of the solver that gave it."""
    before = store.claim_key(COUNTED, Setting())
    assert before == store.claim_key(COUNTED, Setting())
    monkeypatch.setattr(store, "engine", lambda: "another")
    assert store.claim_key(COUNTED, Setting()) != before
