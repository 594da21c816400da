import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner

from metastable.cli import verify as command
from metastable.errors import InvalidInput
from metastable.papers import ESTIMATE, PAPERS, Claim, Outcome, Paper, verify
from sample_claims import BAD, BROKEN, FIELDS, GOOD, RIVALLED, SMALL_PAPER, WARNED, threads


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setitem(PAPERS, "concentration", SMALL_PAPER)
    app = typer.Typer()
    app.command()(command.verify)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [*arguments])


def test_list_names_every_claim(run):
    result = run("--list")
    assert result.exit_code == 0 and "good" in result.output and "One is two." in result.output
    listed = json.loads(run("--list", "--json").output)
    assert [c["claim"] for c in listed["claims"]] == ["good", "bad"]


@pytest.fixture
def two_papers(run, monkeypatch):
    """Two papers of one claim each, of which the second fails."""
    for name, claim in (("concentration", GOOD), ("other", BAD)):
        one = Paper(name, f"About {name}", "A. Nobody", "0000.00000", f"the_{name}")
        monkeypatch.setitem(sys.modules, one.module, SimpleNamespace(CLAIMS=(claim,)))
        monkeypatch.setitem(PAPERS, name, one)
    for name in set(PAPERS) - {"concentration", "other"}:
        monkeypatch.delitem(PAPERS, name)
    return run


def test_all_papers_are_run_into_a_page_each_and_one_that_leads_to_them(two_papers, tmp_path):
    result = two_papers("all", "--jobs", "1", "--out", "here")
    assert result.exit_code == 1
    assert "concentration: The paper: About concentration: 1 of 1 holds" in result.output
    assert "not passed: 1 holds, 1 fails" in result.output
    front = (tmp_path / "here" / "report.html").read_text()
    assert 'data-passed="false"' in front and 'href="other/report.html#claim-bad"' in front
    for name in ("concentration", "other"):
        assert f"About {name}" in (tmp_path / "here" / name / "report.html").read_text()
    record = json.loads(two_papers("all", "--jobs", "1", "--json", "--out", "here").stdout)
    assert record["holds"] is False and record["paper"] == "all"
    assert [(v["paper"], v["claim"]) for v in record["verdicts"]] == [("concentration", "good"), ("other", "bad")]
    assert two_papers("all", "--claim", "good", "--jobs", "1", "--out", "here").exit_code == 0


def test_all_papers_are_listed(two_papers):
    listed = json.loads(two_papers("all", "--list", "--json").output)
    assert [(c["paper"], c["claim"]) for c in listed["claims"]] == [("concentration", "good"), ("other", "bad")]
    told = two_papers("all", "--list").output
    assert "About concentration" in told and "About other" in told


def test_a_failing_claim_is_exit_code_1_and_in_the_table(run, tmp_path):
    result = run("--jobs", "1", "--out", "here")
    assert result.exit_code == 1
    assert "not passed: 1 holds, 1 fails, 0 inconclusive, 0 open" in result.output
    assert (tmp_path / "here" / "report.html").exists()


def test_claims_that_hold_are_exit_code_0_and_json_is_json(run):
    result = run("--claim", "good", "--jobs", "1", "--json")
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert record["holds"] is True and [v["claim"] for v in record["verdicts"]] == ["good"]


@pytest.mark.parametrize("verdict", ["holds", "fails", "inconclusive", "stopped", "open", "not excluded", "none"])
def test_exit_code_json_and_page_agree(run, monkeypatch, tmp_path, verdict):
    claims = {
        "holds": [GOOD],
        "fails": [GOOD, BAD],
        "inconclusive": [GOOD, replace(BAD, name="vague", experiment=lambda s: Outcome(float("nan")))],
        "stopped": [GOOD, BROKEN],
        "open": [GOOD, replace(BAD, open="nobody knows")],
        "not excluded": [GOOD, replace(GOOD, name="dull", rivals={"itself": "It is the same."})],
        "none": [],
    }[verdict]
    monkeypatch.setattr(type(SMALL_PAPER), "claims", property(lambda paper: tuple(claims)))
    right = verdict in ("holds", "open")
    result = run("--jobs", "1", "--json", "--out", "here")
    record = json.loads(result.stdout)
    assert record["holds"] is right and result.exit_code == (0 if right else 1)
    assert f'data-passed="{str(right).lower()}"' in (tmp_path / record["report"]).read_text()
    told = run("--jobs", "1", "--out", "here")
    assert told.exit_code == (0 if right else 1)
    assert ("not passed: " in told.output) is not right


def test_the_table_names_the_nearest_rival_and_whose_claim_it_is(capsys):
    theirs, ours = verify([RIVALLED, replace(WARNED, source=ESTIMATE)], jobs=1)
    command.show([ours, theirs])
    told = capsys.readouterr().out
    assert "two: 2 ± 0.1 fails" in told and "warned: warned. RuntimeWarning: said once" in told
    assert told.index("The paper: ") < told.index("metastable's own estimates: 1 of 1 holds")


def test_unknown_names_are_sentences(run):
    assert isinstance(run("nonsense").exception, InvalidInput)
    result = run("--claim", "ugly")
    assert str(result.exception) == "unknown claim 'ugly'; choose from good, bad"


def test_an_experiment_that_stops_is_not_a_success():
    """A claim that holds does not make up for one whose experiment broke off."""
    found = verify([Claim("t", "s", threads, 1.0, **FIELDS), BROKEN], jobs=1)
    assert [v.stopped for v in found] == [False, True]
    with pytest.raises(typer.Exit):
        command.leave(found)
    command.leave(found[:1])
