import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import metastable as ms
from metastable.cli.forecast import figure, forecast
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
    assert (tmp_path / "forecast.png").stat().st_size > 10_000 and (tmp_path / "forecast.pdf").exists()


def test_figure_shows_curves_range_and_times(tmp_path):
    weights = ms.AttentionWeights(V=np.diag([1.0, 2.0]), B=np.diag([4.0, 1.0]))
    result = ms.theory.forecast(weights, 100.0, ms.sphere.uniform(200, 2))
    drawn = figure(result)
    assert drawn.bands[0].right == result.valid_until
    assert set(drawn.moments.values()) == {"concentration", "crossing", "exit", "safe"}
    inside, whole, zero, safe, bound = (np.asarray(one.y) for one in drawn.series)
    t = np.asarray(drawn.series[0].x)
    assert np.array_equal(np.isfinite(inside), t <= result.valid_until)
    assert np.isfinite(whole).all() and np.isfinite(zero).all() and t[-1] > result.times.exit
    assert np.array_equal(np.isfinite(safe), t <= result.times.safe) and np.nanmax(bound) < 2
    turning = ms.AttentionWeights(V=[[1.0, -2.0], [2.0, 1.0]], B=np.eye(2))
    assert figure(ms.theory.forecast(turning, 10.0, ms.sphere.equispaced(20))) is None
    printed = call("--V", "[[1,-2],[2,1]]", "--B", "I", "--n", 20, "--out", tmp_path)
    assert printed.output.count("wrote") == 1


def test_words_say_what_ends_the_phase():
    result = call("--V", "diag(1,2)", "--B", "diag(4,1)", "--beta", 100, "--n", 200, "--times", "0,1")
    words = " ".join(result.output.replace("│", " ").split())
    assert "clusters follow V" in words and "tokens never" not in words


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
