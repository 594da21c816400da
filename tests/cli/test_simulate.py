"""`metastable simulate` as a user meets it: in a process of its own."""

import json
import subprocess
import sys
import tomllib

import numpy as np
import pytest

import metastable as ms
from metastable.errors import InvalidInput, StorageError
from metastable.readers import parse_matrix, parse_numbers
from metastable.solve.simulation import Simulation, read_config


def metastable(*arguments, cwd):
    command = [sys.executable, "-c", "from metastable.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL)


def test_simulate_writes_a_path_and_a_figure(tmp_path):
    done = metastable("simulate", "--n", 40, "--t", 3, "--frames", 4, "--beta", 8, "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "effective rank" in done.stdout
    path = ms.load(tmp_path / "run" / "path.zarr")
    assert path.times.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert path.provenance["seed"] == 0
    assert (tmp_path / "run" / "tokens.png").read_bytes()[:4] == b"\x89PNG"
    # The configuration that was written runs to the same result.
    config = tomllib.loads((tmp_path / "run" / "config.toml").read_text())
    assert config["tokens"]["n"] == 40
    again = metastable("simulate", "run/config.toml", "--json", cwd=tmp_path)
    assert json.loads(again.stdout)["statistics"] == path.provenance["statistics"]
    other = metastable("simulate", "run/config.toml", "--beta", 9, cwd=tmp_path)
    assert other.returncode == 2
    assert "holds another run" in other.stderr
    assert metastable("simulate", "run/config.toml", "--beta", 9, "--overwrite", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--beta", -3], "metastable: beta must be finite and >= 0, got -3.0"),
        (["--V", "[[1,2]"], "metastable: V = '[[1,2]' is not a matrix"),
        (["--flow", "magic"], "metastable: flow.kind must be 'self-attention', 'unnormalized'"),
        (["nowhere.toml"], "metastable: there is no configuration file 'nowhere.toml'"),
        (["--V", "1e I"], "metastable: V = '1e I' is not understood"),
        (["--n", 10**18], "metastable: tokens.n must be less than or equal to"),
        (["--tokens", "nothing.npy"], "metastable: there is no file 'nothing.npy'"),
    ],
)
def test_errors_are_sentences(arguments, sentence, tmp_path):
    done = metastable("simulate", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(sentence)
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_print_config_is_complete_and_reads_back(tmp_path):
    done = metastable("simulate", "--beta", 3, "--print-config", cwd=tmp_path)
    (tmp_path / "all.toml").write_text(done.stdout)
    assert read_config(str(tmp_path / "all.toml"), {}) == read_config(None, {"flow": {"beta": 3.0}})
    for section in Simulation().model_dump().values():
        for name in section.keys() - {"overwrite"}:
            assert name in done.stdout


def test_configuration_errors(tmp_path):
    broken = tmp_path / "broken.toml"
    broken.write_text("[flow\n")
    with pytest.raises(StorageError, match="is not a TOML file"):
        read_config(str(broken), {})
    broken.write_text("[flow]\nbate = 3\n")
    with pytest.raises(InvalidInput, match=r"flow\.bate is not a known entry; choose from kind, beta"):
        read_config(str(broken), {})
    broken.write_text("[flows]\nbeta = 3\n")
    with pytest.raises(InvalidInput, match="flows is not a known entry; choose from weights, flow"):
        read_config(str(broken), {})
    broken.write_text("[flow]\nbeta = 'x'\n")
    with pytest.raises(InvalidInput, match=r"flow.beta must be a valid number.*got 'x'"):
        read_config(str(broken), {})


def test_every_kind_of_flow_and_law_builds(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    for kind in ("self-attention", "unnormalized", "zero-temperature", "hardmax", "euclidean"):
        flow, _ = read_config(None, {"flow": {"kind": kind}}).build()
        assert flow.d == 2
    for law in ("uniform", "fibonacci", "von-mises-fisher", "file"):
        settings = read_config(
            None,
            {
                "weights": {"V": "diag(1,2,3)", "B": "2 I"},
                "tokens": {"law": law, "n": 7, "file": str(tmp_path / "x.npy")},
            },
        )
        assert settings.build()[1].d == 3
    with pytest.raises(InvalidInput, match="equispaced tokens live in dimension 2"):
        read_config(None, {"weights": {"V": "I3", "B": "I3"}, "tokens": {"law": "equispaced"}}).build()


def test_matrices_as_people_write_them(tmp_path):
    np.savetxt(tmp_path / "m.txt", np.eye(2))
    assert parse_matrix("[[1,.5],[0,1]]").tolist() == [[1.0, 0.5], [0.0, 1.0]]
    assert parse_matrix("-I2").tolist() == [[-1.0, 0.0], [0.0, -1.0]]
    assert parse_matrix("1.5*I", d=1).tolist() == [[1.5]]
    assert parse_matrix(str(tmp_path / "m.txt")).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert parse_numbers("4, 16 64") == [4.0, 16.0, 64.0]
    for wrong in ("I", "magic", "[1,", "diag(a)", ". I2", "[1, 2]"):
        with pytest.raises(InvalidInput):
            parse_matrix(wrong)
    (tmp_path / "bad.npy").write_bytes(b"nonsense")
    with pytest.raises(StorageError, match="cannot be read as an array"):
        parse_matrix(str(tmp_path / "bad.npy"))
