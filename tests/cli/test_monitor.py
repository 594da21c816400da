import json

import pytest
from typer.testing import CliRunner

from metastable.cli import app
from metastable.cli.monitor import read_documents
from metastable.errors import InvalidInput, MetastableError, StorageError
from tiny_encoders import WORDS, configs, random_model
from walks import sentences


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("models") / "tiny-bert"
    random_model(configs()["bert"]).save_pretrained(place)
    (place / "vocab.txt").write_text("\n".join(WORDS))
    return place


@pytest.fixture(scope="module")
def calibration(folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("calibration")
    (place / "corpus.txt").write_text("\n\n".join(sentences(200, 0)))
    made = run("calibrate", folder, place / "corpus.txt", "--out", place / "c.npz")
    assert made.exit_code == 0, made.output
    assert "200 texts of 200 documents" in made.output
    return place / "c.npz"


def run(*arguments):
    return CliRunner().invoke(app, ["monitor", *map(str, arguments)])


def test_score_says_which_texts_alarm_and_exits_with_the_drift(folder, calibration, tmp_path) -> None:
    (tmp_path / "usual.txt").write_text("\n\n".join(sentences(20, 1)))
    told = run("score", calibration, folder, tmp_path / "usual.txt")
    assert told.exit_code == 0, told.output
    assert "texts alarm; drift of all of them: p = " in told.output
    (tmp_path / "odd.txt").write_text("\n\n".join(" ".join(letter * 20) for letter in "qxzjkv"))
    told = run("score", calibration, folder, tmp_path / "odd.txt", "--json")
    assert told.exit_code == 1
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert lines[0]["alarm"] and lines[-1]["drift"]["alarm"]


def test_report_writes_a_page_and_its_numbers(folder, calibration, tmp_path) -> None:
    (tmp_path / "odd.txt").write_text("\n\n".join([*sentences(10, 2), " ".join("q" * 20)]))
    told = run("report", calibration, folder, tmp_path / "odd.txt", "--out", tmp_path / "page.html")
    assert told.exit_code == 0, told.output
    assert "<mark" in (tmp_path / "page.html").read_text() and (tmp_path / "page.json").is_file()


def test_a_calibration_of_another_model_is_refused(calibration, tmp_path) -> None:
    random_model(configs()["bert"], seed=3).save_pretrained(tmp_path / "other")
    (tmp_path / "other" / "vocab.txt").write_text("\n".join(WORDS))
    (tmp_path / "t.txt").write_text("a b c")
    told = run("score", calibration, tmp_path / "other", tmp_path / "t.txt")
    assert isinstance(told.exception, MetastableError) and "belongs to weights" in str(told.exception)


def test_serve_is_on_this_machine_only_and_says_where(folder, calibration, monkeypatch) -> None:
    seen = {}
    monkeypatch.setattr("metastable.monitor.service.app.serve", lambda *given: seen.update(given=given))
    told = run("serve", calibration, folder, "--port", "0")
    assert told.exit_code == 0, told.output
    assert seen["given"][1:] == ("127.0.0.1", 0) and "http://127.0.0.1:0/" in told.output


def test_documents_of_files_and_of_lines(tmp_path) -> None:
    (tmp_path / "one.txt").write_text("first\n\nsecond")
    (tmp_path / "two.txt").write_text("third\n\nfourth")
    texts, documents = read_documents([tmp_path])
    assert texts == ["first", "second", "third", "fourth"]
    assert documents[0] == documents[1] != documents[2]
    assert read_documents([tmp_path / "one.txt"]) == (["first", "second"], None)
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"text": "a", "document": 7}\n\n{"text": "b"}\n')
    assert read_documents([lines])[1][0] == "7"
    lines.write_text('{"texts": "a"}\n')
    with pytest.raises(InvalidInput, match=r"line 1 of lines\.jsonl"):
        read_documents([lines])
    lines.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StorageError, match="cannot be read as lines of JSON"):
        read_documents([lines])


def test_missing_files_are_told(folder, tmp_path) -> None:
    nowhere = tmp_path / "no.txt"
    assert isinstance(run("score", tmp_path / "no.npz", folder, nowhere).exception, MetastableError)
    assert isinstance(run("calibrate", folder, nowhere).exception, MetastableError)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="there are no files"):
        read_documents([tmp_path / "empty"])
