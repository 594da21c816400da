import json
import threading

import pytest

from metastable.errors import StorageError
from metastable.monitor.service.journal import Journal


def test_every_entry_is_a_line_of_json(tmp_path) -> None:
    journal = Journal(tmp_path / "deep" / "log.jsonl")
    journal.write({"p": 0.5, "text": "zwei\nZeilen"})
    journal.write({"p": 0.25})
    journal.close()
    lines = [json.loads(line) for line in (tmp_path / "deep" / "log.jsonl").read_text().splitlines()]
    assert [line["p"] for line in lines] == [0.5, 0.25] and lines[0]["time"] > 0


def test_the_log_is_turned_over_and_never_grows_for_ever(tmp_path) -> None:
    journal = Journal(tmp_path / "log.jsonl", largest=2000)
    for i in range(500):
        journal.write({"i": i})
    journal.close()
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["log.jsonl", "log.jsonl.1"]
    assert sum(file.stat().st_size for file in files) <= 4000
    assert json.loads(files[0].read_text().splitlines()[-1])["i"] == 499


def test_threads_do_not_mix_their_lines(tmp_path) -> None:
    journal = Journal(tmp_path / "log.jsonl")

    def speak() -> None:
        for i in range(100):
            journal.write({"i": i, "long": "x" * 200})

    threads = [threading.Thread(target=speak) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([json.loads(line) for line in journal.path.read_text().splitlines()]) == 600


def test_a_place_that_cannot_be_written_is_told(tmp_path) -> None:
    with pytest.raises(StorageError, match="the log cannot be written"):
        Journal(tmp_path)
