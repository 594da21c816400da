"""Texts of a file: paragraphs and lines, encodings, binary files, long lines."""

from __future__ import annotations

import codecs

import pytest

from metastable.audit import Corpus, audit, read_corpus
from metastable.audit.corpus import as_corpus, split
from metastable.errors import InvalidInput, StorageError


def written(tmp_path, content):
    file = tmp_path / "text.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


def test_paragraphs_or_lines(tmp_path):
    assert read_corpus(written(tmp_path, "a b\nc\n\n \t\nd\r\n\r\ne")).items == ["a b c", "d", "e"]
    assert read_corpus(written(tmp_path, "a b\nc d\n")).items == ["a b", "c d"]
    corpus = read_corpus(written(tmp_path, "\n".join("abcdefghij")), max_texts=5)
    assert corpus.items == list("acegi") and corpus.found == 10 and corpus.file.endswith("text.txt")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_file_that_says_its_encoding(tmp_path, encoding):
    corpus = read_corpus(written(tmp_path, "Käse\nBrot".encode(encoding)))
    assert corpus.items == ["Käse", "Brot"] and corpus.encoding == encoding


def test_another_encoding_is_refused_until_it_is_told(tmp_path):
    file = written(tmp_path, "Käse\nBrot".encode("latin-1"))
    with pytest.raises(
        InvalidInput, match=r"not utf-8 \(byte 0xe4 at 1\); say what it is, such as --encoding latin-1"
    ):
        read_corpus(file)
    assert read_corpus(file, encoding="latin-1").items == ["Käse", "Brot"]
    with pytest.raises(InvalidInput, match="unknown encoding 'elvish'"):
        read_corpus(file, encoding="elvish")


@pytest.mark.parametrize("content", [bytes(range(256)) * 4, b"\x89PNG\r\n\x1a\n\0\0\0", b"\x01\x02\x03abc" * 30])
def test_binary_files_are_refused(tmp_path, content):
    with pytest.raises(InvalidInput, match=r"binary|not utf-8"):
        read_corpus(written(tmp_path, content))


def test_garbled_text_is_told(tmp_path):
    garbled = ("Ein schöner Käse für Ämter. " * 5).encode().decode("latin-1")
    assert "garbled" in read_corpus(written(tmp_path, garbled)).remarks[0]
    assert (
        "garbled" in read_corpus(written(tmp_path, garbled.encode("cp1252", "replace").decode("cp1252"))).remarks[0]
    )
    assert "lost" in read_corpus(written(tmp_path, "K\ufffdse")).remarks[0]
    assert read_corpus(written(tmp_path, "Ein schöner Käse, São Tomé, naïve Âge")).remarks == ()


def test_long_lines_are_split(tmp_path):
    line = " ".join(f"This is sentence number {i} of a long line." for i in range(200))
    corpus = read_corpus(written(tmp_path, line), max_tokens=20)
    assert all(len(text) <= 120 for text in corpus.items) and corpus.pieces == 1
    assert " ".join(corpus.items) == line and all(text.endswith(".") for text in corpus.items)
    assert read_corpus(written(tmp_path, line)).items == [line]


def test_what_has_no_blanks_is_cut_anywhere():
    assert split("ACDEFGHIK" * 3, 10) == ["ACDEFGHIKA", "CDEFGHIKAC", "DEFGHIK"]
    assert split("short", 10) == ["short"]


def test_files_that_hold_nothing(tmp_path):
    with pytest.raises(InvalidInput, match="holds no text"):
        read_corpus(written(tmp_path, "\n \n"))
    with pytest.raises(InvalidInput, match="holds no text"):
        read_corpus(written(tmp_path, codecs.BOM_UTF8))
    with pytest.raises(StorageError, match="cannot be read"):
        read_corpus(tmp_path / "nowhere.txt")
    for options in ({"max_texts": 0}, {"max_tokens": "many"}, {"encoding": 3}):
        with pytest.raises(InvalidInput):
            read_corpus(written(tmp_path, "a"), **options)


def test_lists_are_spread_as_files_are():
    assert as_corpus(list("abcdefghij"), 5).items == list("acegi")
    corpus = Corpus(["a"], 7, "x.txt")
    assert as_corpus(corpus) is corpus and as_corpus("one text").items == ["one text"]


def test_limits_of_the_function_are_those_of_the_command(tiny):
    ids = [list(range(5, 30)) for _ in range(6)]
    report = audit(tiny("bert"), ids, max_texts=2, max_tokens=9, loop_steps=2)
    assert report.text.texts == 2 and report.text.tokens == 18 and report.text.cut == 2
    assert report.provenance["input"]["given"] == 6 and report.provenance["input"]["used"] == 2
    for options in ({"max_texts": 0}, {"max_tokens": 0}, {"max_texts": "3"}, {"advice": 1}, {"given": 3}):
        with pytest.raises(InvalidInput):
            audit(tiny("bert"), ids, **options)
