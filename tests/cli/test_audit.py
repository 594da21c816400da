"""`metastable audit`: texts of a file, one model or a series, and refusals before anything is opened."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from metastable.audit import read_corpus
from metastable.cli.audit import audit as command
from metastable.errors import InvalidInput, StorageError
from tiny_encoders import WORDS, configs, random_model, transformers


def test_command_line(tmp_path):
    folder = tmp_path / "tiny-bert"
    random_model(configs()["bert"]).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    text = tmp_path / "text.txt"
    text.write_text("a b c d\ne f g\n\nh i j k l m\n\n\n\nn o p")
    assert read_corpus(text, max_texts=10).items == ["a b c d e f g", "h i j k l m", "n o p"]
    assert read_corpus(text, max_texts=2).items == ["a b c d e f g", "h i j k l m"]
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


def folder_of(tmp_path, name="tiny-bert", tokenizer=True, seed=0, family="bert"):
    folder = tmp_path / name
    random_model(configs()[family], seed).save_pretrained(folder)
    if tokenizer:
        (folder / "vocab.txt").write_text("\n".join(WORDS))
    return folder


def prose(tmp_path, lines=8):
    file = tmp_path / "text.txt"
    file.write_text("\n".join(" ".join("abcdefghijklmnopqrstuvwxyz"[i : i + 12]) for i in range(lines)))
    return file


def run(*arguments):
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_two_models_and_thresholds(tmp_path):
    one, other = folder_of(tmp_path, "one"), folder_of(tmp_path, "other", seed=1)
    text = prose(tmp_path)
    page = tmp_path / "c.html"
    ran = run(one, "--against", other, "--text", text, "--out", page, "--fail-if", "embedding_cosine<0.99")
    assert ran.exit_code == 1 and "fails: embedding_cosine is" in ran.stderr
    assert "other gives pairs of texts" in ran.stdout and page.is_file()
    ran = run(one, "--against", one, "--text", text, "--json", "--fail-if", "embedding_cosine<0.99")
    assert ran.exit_code == 0 and json.loads(ran.stdout)["embedding_cosine"] > 0.999999
    ran = run(one, "--against", other)
    assert ran.exit_code == 0 and "9 of 9 heads moved in their weights" in ran.stdout


def test_thresholds_of_one_model(tmp_path):
    folder, text = folder_of(tmp_path), prose(tmp_path)
    ran = run(folder, "--text", text, "--fail-if", "entropy>2", "--fail-if", "text.layers.0.entropy >= 0")
    assert ran.exit_code == 1 and ran.stderr.count("fails:") == 1 and "text.layers.0.entropy" in ran.stderr
    assert isinstance(run(folder, "--fail-if", "entropy").exception, InvalidInput)
    ran = run(tmp_path / "never opened", tmp_path / "b", "--series", "--fail-if", "kappa>1")
    assert "a series has no one number" in str(ran.exception)
    ran = run(folder, "--fail-if", "entropy>2")
    assert "unknown number 'entropy'" in str(ran.exception) and "kappa" in str(ran.exception)


def test_options_that_do_not_go_together(tmp_path):
    nowhere = tmp_path / "never opened"
    for arguments, told in (
        ((nowhere, nowhere, "--series", "--against", nowhere), "--series and --against"),
        ((nowhere, "--text", prose(tmp_path), "--images", tmp_path), "--text and --images"),
        ((nowhere, "--advice"), "--advice is tried on texts"),
        ((nowhere, "--advice", "--against", nowhere), "--advice is for one model"),
    ):
        ran = run(*arguments)
        assert isinstance(ran.exception, InvalidInput) and told in str(ran.exception)


def test_a_missing_tokenizer_is_told_before_the_work(tmp_path, monkeypatch):
    folder, text = folder_of(tmp_path, tokenizer=False), prose(tmp_path)
    monkeypatch.setattr("metastable.audit.report.audit_weights", None)
    ran = run(folder, "--text", text)
    assert isinstance(ran.exception, InvalidInput) and "--tokenizer" in str(ran.exception)
    monkeypatch.undo()
    assert run(folder, "--text", text, "--tokenizer", folder_of(tmp_path, "other")).exit_code == 0


def test_images_on_the_command_line(tmp_path):
    folder = folder_of(tmp_path, "vit", tokenizer=False, family="vit")
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    for i in range(3):
        values = np.random.default_rng(i).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(values).save(pictures / f"{i}.png")
    ran = run(folder, "--images", pictures, "--max-texts", 2, "--json")
    assert ran.exit_code == 0, ran.exception
    numbers = json.loads(ran.stdout)
    assert numbers["text"]["item"] == "image" and numbers["text"]["texts"] == 2
    assert numbers["provenance"]["input"]["given"] == 3
    ran = run(folder, "--text", prose(tmp_path))
    assert "this model reads images" in str(ran.exception)


def test_weights_of_torch_with_their_config_and_family(tmp_path):
    model = random_model(configs()["bert"])
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    settings = model.config.to_dict()
    del settings["model_type"]
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    ran = run(tmp_path / "weights.pt")
    assert isinstance(ran.exception, InvalidInput) and "--config" in str(ran.exception)
    ran = run(tmp_path / "weights.pt", "--config", tmp_path / "settings.json")
    assert "--family bert" in str(ran.exception)
    ran = run(tmp_path / "weights.pt", "--config", tmp_path / "settings.json", "--family", "bert", "--json")
    assert ran.exit_code == 0 and json.loads(ran.stdout)["model"]["family"] == "bert"


def test_text_files_that_are_none(tmp_path):
    folder, file = folder_of(tmp_path), tmp_path / "text.txt"
    file.write_bytes(bytes(range(256)))
    assert isinstance(run(folder, "--text", file).exception, InvalidInput)
    file.write_bytes("a b ä c d\n e f g h".encode("latin-1"))
    assert "--encoding latin-1" in str(run(folder, "--text", file).exception)
    assert run(folder, "--text", file, "--encoding", "latin-1").exit_code == 0
    file.write_text("a b c d \u00c3\u00a4 e f")
    assert "garbled" in run(folder, "--text", file).stderr
    file.write_text(" ".join("abcdefghij" * 400))
    ran = run(folder, "--text", file, "--max-tokens", 16, "--json")
    told = json.loads(ran.stdout)["provenance"]["input"]
    assert told["long_texts_split"] == 1 and told["given"] > 16 == told["used"]


def test_nothing_of_other_libraries_on_standard_error(tmp_path):
    """A text beyond the model's limit, a head that is left out, a missing pooler: transformers warns of each."""
    torch.manual_seed(0)
    folder = tmp_path / "headed"
    transformers.BertForMaskedLM(configs()["bert"]).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    text = tmp_path / "long.txt"
    text.write_text(" ".join("abcdefgh" * 200) + "\n\n" + "a b c d e f g h i j k l m n o p")
    code = "from metastable.cli import main; main()"
    arguments = [sys.executable, "-c", code, "audit", str(folder), "--text", str(text), "--max-tokens", "500"]
    ran = subprocess.run(arguments, capture_output=True, text=True)
    assert ran.returncode == 0 and ran.stderr.strip() == "", ran.stderr
