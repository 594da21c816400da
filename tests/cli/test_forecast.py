import json

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from metastable.cli.forecast import forecast
from metastable.errors import InvalidInput, StorageError
from metastable.readers import read_weights

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


def test_weights_from_files(tmp_path):
    V, B = np.diag([2.0, 1.0]), np.array([[1.0, 0.5], [0.0, 1.0]])
    np.savez(tmp_path / "w.npz", V=V, B=B)
    (tmp_path / "w.json").write_text(json.dumps({"V": V.tolist(), "B": B.tolist()}))
    (tmp_path / "w.toml").write_text('[weights]\nV = "diag(2,1)"\nB = [[1.0, 0.5], [0.0, 1.0]]\n')
    for name in ("w.npz", "w.json", "w.toml"):
        w = read_weights(str(tmp_path / name), None, None, None)
        assert np.allclose(w.V.numpy(), V) and np.allclose(w.B.numpy(), B)
    overruled = read_weights(str(tmp_path / "w.npz"), None, "I", None)
    assert np.allclose(overruled.B.numpy(), np.eye(2))
    rng = np.random.default_rng(0)
    Q, K = rng.normal(size=(2, 3)), rng.normal(size=(2, 3))
    np.savez(tmp_path / "qkv.npz", Q=Q, K=K, V=np.eye(3))
    assert np.allclose(read_weights(str(tmp_path / "qkv.npz"), None, None, None).B.numpy(), Q.T @ K)


def test_one_sentence_for_each_mistake(tmp_path):
    with pytest.raises(StorageError, match="no file"):
        read_weights("absent.npz", None, None, None)
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(StorageError, match="cannot be read"):
        read_weights(str(tmp_path / "bad.json"), None, None, None)
    (tmp_path / "list.json").write_text("[1]")
    with pytest.raises(InvalidInput, match="by name"):
        read_weights(str(tmp_path / "list.json"), None, None, None)
    with pytest.raises(InvalidInput, match="both V and B"):
        read_weights(None, "diag(1,2)", None, None)
    for arguments, error in (
        (("--tokens", "fibonacci"), InvalidInput),
        (("--tokens", "moons"), InvalidInput),
        (("--beta", "-1"), InvalidInput),
        (("--V", "I2", "--B", "diag(1,0)"), InvalidInput),
        (("--V", "diag(1e200,1)", "--B", "diag(1e200,1)"), InvalidInput),
    ):
        assert isinstance(call(*arguments).exception, error)
