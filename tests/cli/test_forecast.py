import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from metastable.cli.forecast import forecast
from metastable.errors import InvalidInput

app = typer.Typer()
app.command()(forecast)


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=True)


def test_table_on_the_terminal():
    result = call("--V", "diag(1,2)", "--B", "diag(4,1)", "--beta", 100, "--n", 200, "--times", "0,1,2")
    assert result.exit_code == 0, result.output
    for word in ("crossing", "terminal", "predicted", "fails:", "holds:"):
        assert word in result.output


def test_json_has_the_forecast_and_its_curves(tmp_path):
    result = call(
        "--V",
        "diag(2,1)",
        "--B",
        "I",
        "--beta",
        64,
        "--n",
        300,
        "--tokens",
        "equispaced",
        "--json",
        "--out",
        tmp_path,
    )
    assert result.exit_code == 0, result.output
    record = json.loads(result.output)
    assert record["rates"]["c"] == pytest.approx(0.5)
    assert record["times"]["exit"] is None  # never
    assert len(record["curves"]["t"]) == len(record["curves"]["predicted"]) == 8
    assert json.loads((tmp_path / "forecast.json").read_text()) == record


def test_rotation_has_no_curve_but_a_warning():
    result = call("--V", "[[1,-2],[2,1]]", "--B", "I", "--n", 100, "--json")
    record = json.loads(result.output)
    assert "curves" not in record and any("complex pair" in w for w in record["warnings"])
    assert call("--V", "[[1,-2],[2,1]]", "--B", "I", "--n", 100).exit_code == 0


def test_antipodal_attention_leaves_for_the_bottom_of_V():
    record = json.loads(call("--V", "diag(-1,-2)", "--B", "diag(-3,-1)", "--beta", 64, "--n", 400, "--json").output)
    assert record["times"]["exit"] == pytest.approx(10, abs=2)
    assert np.abs(record["terminal"]["space"]) == pytest.approx(np.array([[0.0], [1.0]]))


def test_weights_that_move_nothing():
    for V, B in (("I2", "I2"), ("diag(0,0)", "diag(1,2)")):
        result = call("--V", V, "--B", B, "--n", 50)
        assert result.exit_code == 0, result.output
        assert "1e-300" not in result.output and " yes " not in result.output


def test_one_sentence_for_each_mistake():
    for arguments, error in (
        (("--tokens", "fibonacci"), InvalidInput),
        (("--tokens", "moons"), InvalidInput),
        (("--beta", "-1"), InvalidInput),
        (("--V", "I2", "--B", "diag(1,0)"), InvalidInput),
        (("--V", "diag(1e200,1)", "--B", "diag(1e200,1)"), InvalidInput),
    ):
        assert isinstance(call(*arguments).exception, error)
