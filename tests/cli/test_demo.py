import json

import pytest
import typer
from typer.testing import CliRunner

from metastable.cli.demo import demo
from metastable.papers import PAPERS
from sample_claims import SMALL_PAPER


@pytest.fixture
def run(monkeypatch, tmp_path):
    monkeypatch.setitem(PAPERS, "concentration", SMALL_PAPER)
    app = typer.Typer()
    app.command()(demo)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, [*arguments])


def test_demo_ends_with_the_path_of_the_report(run, tmp_path):
    result = run("--jobs", "1")
    assert result.exit_code == 1  # one of the two claims fails
    assert result.output.rstrip().splitlines()[-1] == "metastable-out/demo/report.html"
    assert (tmp_path / "metastable-out" / "demo" / "figures" / "good.png").exists()


def test_json_is_json_with_the_page_beside_it(run, tmp_path):
    record = json.loads(run("--jobs", "1", "--json", "--out", "here").stdout)
    assert [v["verdict"] for v in record["verdicts"]] == ["holds", "fails"]
    assert (tmp_path / record["report"]).is_file()
