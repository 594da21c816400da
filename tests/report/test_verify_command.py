import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from metastable.cli import demo as demo_module
from metastable.cli import verify as verify_module
from metastable.errors import InvalidInput
from metastable.papers import PAPERS, Claim, Finding, Lines, Paper, Series

FIELDS = {"tolerance": 0.1, "reason": "test", "source": "test", "unit": "number", "theme": "Test"}
FIGURE = {"figure": lambda finding: Lines("One", "x", "y", [Series([0, 1], [1, 2], "a")])}


def finding(setting):
    return Finding(1.0, curves={"x": np.ones(1)})


CLAIMS = [
    Claim("good", "One is one.", finding, 1.0, **FIELDS, **FIGURE),
    Claim("bad", "One is two.", finding, 2.0, **FIELDS),
]


class Tiny(Paper):
    @property
    def claims(self):
        return tuple(CLAIMS)


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setitem(PAPERS, "concentration", Tiny("concentration", "A paper", "Nobody", "0000.00000", "none"))
    app = typer.Typer()
    app.command("verify")(verify_module.verify)
    app.command("demo")(demo_module.demo)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        return CliRunner().invoke(app, [*arguments])

    return invoke


def test_list_names_every_claim(run):
    result = run("verify", "--list")
    assert result.exit_code == 0 and "good" in result.output and "One is two." in result.output
    listed = json.loads(run("verify", "--list", "--json").output)
    assert [c["claim"] for c in listed["claims"]] == ["good", "bad"]


def test_a_failing_claim_is_exit_code_1_and_in_the_table(run, tmp_path):
    result = run("verify", "--jobs", "1", "--out", "here")
    assert result.exit_code == 1
    assert "1 holds, 1 fails, 0 inconclusive" in result.output
    assert (tmp_path / "here" / "report.html").exists()


def test_claims_that_hold_are_exit_code_0_and_json_is_json(run):
    result = run("verify", "--claim", "good", "--jobs", "1", "--json")
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert record["holds"] is True and [v["claim"] for v in record["verdicts"]] == ["good"]


def test_unknown_names_are_sentences(run):
    assert isinstance(run("verify", "nonsense").exception, InvalidInput)
    result = run("verify", "--claim", "ugly")
    assert str(result.exception) == "unknown claim 'ugly'; choose from good, bad"


def test_demo_ends_with_the_path_of_the_report(run, tmp_path):
    result = run("demo", "--jobs", "1")
    assert result.output.rstrip().splitlines()[-1] == "metastable-out/demo/report.html"
    assert (tmp_path / "metastable-out" / "demo" / "figures" / "good.png").exists()
