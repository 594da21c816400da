import json

import typer
from typer.testing import CliRunner

from metastable.cli.bench import bench
from metastable.errors import InvalidInput, NotDefined, StorageError

app = typer.Typer()
app.command()(bench)


def call(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=True)


def test_every_benchmark_is_listed_with_what_it_measures():
    result = call("--list")
    assert result.exit_code == 0, result.output
    names = [line.split()[0] for line in result.output.splitlines()]
    assert {"attend", "hardmax", "limits", "meanfield", "solve", "sphere_attend", "transport", "gpu"} <= set(names)
    assert all(len(line.split()) > 4 for line in result.output.splitlines())
    starts = {line.index(line.split(maxsplit=1)[1]) for line in result.output.splitlines()}
    assert len(starts) == 1  # the sentences stand in one column


def test_one_benchmark_prints_its_numbers_and_leaves_a_file(tmp_path):
    """Hardmax shares code with the benchmark of `attend`, as `python benchmarks/hardmax.py` would find it."""
    result = call("hardmax", "--quick", "--json", "--out", tmp_path)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout.splitlines()[-1])["results"]["hardmax"]["rows"]
    assert rows == json.loads((tmp_path / "hardmax.json").read_text())["rows"]
    assert {row["d"] for row in rows} >= {2, 3}
    assert all(row["differ"] == 0 for row in rows)


def test_an_unknown_name_a_bad_folder_and_a_machine_without_a_gpu_get_a_sentence(tmp_path):
    result = call("speed")
    assert isinstance(result.exception, InvalidInput)
    assert "unknown benchmark 'speed'; choose from attend, bounds, causal, choice, detect" in str(result.exception)
    (tmp_path / "file").write_text("")
    result = call("limits", "--quick", "--out", tmp_path / "file" / "folder")
    assert isinstance(result.exception, StorageError)
    assert "cannot create the folder" in str(result.exception)
    result = call("gpu", "--out", tmp_path)
    assert result.exit_code == 0 or isinstance(result.exception, NotDefined)
