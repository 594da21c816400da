"""`metastable simulate` as a user meets it: in a process of its own."""

import json
import subprocess
import sys
import tomllib

import pytest

import metastable as ms
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
