"""`metastable simulate` as a user meets it: in a process of its own."""

import json
import re
import subprocess
import sys
import tomllib

import pytest
from typer.testing import CliRunner

import metastable as ms
from metastable.attention.select import KERNELS
from metastable.cli import app
from metastable.cli.simulate import KERNEL_NAMES
from metastable.solve.simulation import Simulation, read_config
from metastable.solve.stepper import DEFAULT_STEP


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
    again = json.loads(metastable("simulate", "run/config.toml", "--json", cwd=tmp_path).stdout)
    assert again["statistics"] == path.provenance["statistics"]
    assert again["complete_before"] and again["resumed_at"] is None
    assert "this run was complete before" in metastable("simulate", "run/config.toml", cwd=tmp_path).stdout
    other = metastable("simulate", "run/config.toml", "--beta", 9, cwd=tmp_path)
    assert other.returncode == 2
    assert "holds another run" in other.stderr
    assert metastable("simulate", "run/config.toml", "--beta", 9, "--overwrite", cwd=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--beta", -3], "metastable: beta must be >= 0, got -3.0"),
        (["--V", "[[1,2]"], "metastable: V = '[[1,2]' is not a matrix"),
        (["--flow", "magic"], "metastable: flow.kind must be 'self-attention', 'unnormalized'"),
        (["nowhere.toml"], "metastable: there is no configuration file 'nowhere.toml'"),
        (["--V", "1e I"], "metastable: V = '1e I' is not understood"),
        (["--n", 10**18], "metastable: tokens.n must be less than or equal to"),
        (["--n", "1e"], "metastable: n must be a whole number such as 600 or 1e6, got '1e'"),
        (["--n", "2.5"], "metastable: n must be a whole number such as 600 or 1e6, got '2.5'"),
        (["--attention-rtol", "few"], "metastable: attention-rtol must be auto, none or a number, got 'few'"),
        (["--kernel", "fast"], "metastable: unknown kernel 'fast'; choose from auto, "),
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


def test_the_help_shows_the_defaults_and_the_kernels(monkeypatch):
    monkeypatch.setenv("COLUMNS", "250")
    shown = CliRunner().invoke(app, ["simulate", "--help"]).stdout
    assert sorted(KERNEL_NAMES[1:]) == sorted(KERNELS) and ", ".join(KERNEL_NAMES) in shown
    defaults = Simulation().to_dict()
    for option, (section, name) in {
        "--V": ("weights", "V"),
        "--B": ("weights", "B"),
        "--flow": ("flow", "kind"),
        "--beta": ("flow", "beta"),
        "--attention-rtol": ("flow", "rtol"),
        "--kernel": ("flow", "kernel"),
        "--n": ("tokens", "n"),
        "--tokens": ("tokens", "law"),
        "--seed": ("tokens", "seed"),
        "--t": ("run", "t"),
        "--frames": ("run", "frames"),
        "--method": ("run", "method"),
        "--rtol": ("run", "rtol"),
        "--atol": ("run", "atol"),
        "--dtype": ("run", "dtype"),
        "--device": ("run", "device"),
        "--out": ("output", "out"),
    }.items():
        (line,) = [row for row in shown.splitlines() if row.startswith(f"│ {option} ")]
        (written,) = re.findall(r"default: \((.*)\)\]", line)
        wanted = defaults[section][name]
        assert written == wanted if isinstance(wanted, str) else float(written) == wanted, option
    (line,) = [row for row in shown.splitlines() if row.startswith("│ --step ")]
    assert f"({DEFAULT_STEP})" in line


def test_numbers_as_a_person_writes_them(tmp_path):
    done = metastable("simulate", "--n", "1e3", "--attention-rtol", "1e-6", "--print-config", cwd=tmp_path)
    config = tomllib.loads(done.stdout)
    assert config["tokens"]["n"] == 1000 and config["flow"]["rtol"] == 1e-6


def test_a_long_run_says_what_it_will_cost(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("metastable.cli.simulate.LONG", 0.0)
    monkeypatch.setattr("metastable.solve.cost.SHORTEST", 0.0)
    done = CliRunner().invoke(app, ["simulate", "--n", "50", "--t", "0.1", "--frames", "2", "--json"])
    assert done.exit_code == 0
    assert re.match(r"about 0 s: some \d+ evaluations of the field, .* s each by the kernel fused", done.stderr)
