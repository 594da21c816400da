"""`metastable audit`: texts of a file, one model or a series, and refusals before anything is opened."""

from __future__ import annotations

import json

import typer
from typer.testing import CliRunner

from metastable.cli.audit import audit as command
from metastable.cli.audit import read_texts
from metastable.errors import InvalidInput, StorageError
from tiny_encoders import WORDS, configs, random_model


def test_command_line(tmp_path):
    folder = tmp_path / "tiny-bert"
    random_model(configs()["bert"]).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    text = tmp_path / "text.txt"
    text.write_text("a b c d\ne f g\n\nh i j k l m\n\n\n\nn o p")
    assert read_texts(text, 10) == ["a b c d e f g", "h i j k l m", "n o p"]
    assert read_texts(text, 2) == ["a b c d e f g", "h i j k l m"]
    app = typer.Typer()
    app.command()(command)
    run = CliRunner().invoke(app, [str(folder), "--text", str(text), "--json", "--out", str(tmp_path / "r.html")])
    assert run.exit_code == 0, run.output
    numbers = json.loads(run.stdout)
    assert numbers["text"]["texts"] == 3 and (tmp_path / "r.html").is_file()
    run = CliRunner().invoke(app, ["--series", str(folder), str(folder), "--max-tokens", "8"])
    assert run.exit_code == 0 and "Nothing moved" in run.stdout
    run = CliRunner().invoke(app, [str(folder), str(folder)])
    assert isinstance(run.exception, InvalidInput) and "--series" in str(run.exception)
    run = CliRunner().invoke(app, [str(folder), "--device", "abacus"])
    assert isinstance(run.exception, InvalidInput) and "'abacus' cannot be used" in str(run.exception)
    for place, told in ((tmp_path, "it is a folder"), (text / "r.html", "text.txt is no folder")):
        run = CliRunner().invoke(app, [str(tmp_path / "never opened"), "--out", str(place)])
        assert isinstance(run.exception, StorageError) and told in str(run.exception)
    (tmp_path / "empty.txt").write_text("\n\n")
    run = CliRunner().invoke(app, [str(folder), "--text", str(tmp_path / "empty.txt")])
    assert "holds no text" in str(run.exception)
