import json
import math
import os

import numpy as np
import pytest

from metastable.drawing.palette import VERDICTS
from metastable.drawing.shell import compose, cosine, number, save_page, share
from metastable.errors import StorageError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        ("words", "words"),
        (True, "True"),
        (np.int64(-3), "−3"),
        (1234567, "1234567"),
        (0.000123456, "0.0001235"),
        (np.float64(-1e-9), "−1e−09"),
        (2.0 + 0j, "2"),
        (1.5 - 0.25j, "1.5 ± 0.25i"),
    ],
)
def test_numbers_as_text(value, text):
    assert number(value) == text


def test_shares_and_cosines():
    assert (share(0.256), share(None), cosine(-0.456), cosine(None)) == ("26%", "–", "−0.46", "–")
    assert cosine(-0.001) == "0.00"


def test_a_page_is_composed_from_the_shell_and_escapes(tmp_path, monkeypatch):
    room = tmp_path / "strange_room"
    (room / "templates").mkdir(parents=True)
    (room / "__init__.py").write_text("")
    (room / "templates" / "page.html.j2").write_text(
        '{% extends "shell.html.j2" %}{% block title %}{{ name }}{% endblock %}'
        "{% block content %}<p>{{ name }} {{ 1.5|number }} {{ drawn|safe }}</p>{% endblock %}"
    )
    monkeypatch.syspath_prepend(tmp_path)
    page = compose("strange_room", "page.html.j2", name="<b>", drawn="<svg></svg>")
    assert page.startswith("<!doctype html>") and page.rstrip().endswith("</html>")
    assert "<title>&lt;b&gt;</title>" in page and "<p>&lt;b&gt; 1.5 <svg></svg></p>" in page
    for name, colour in VERDICTS.items():
        assert f".{name} {{ color: {colour}; }}" in page
    assert not any(word in page for word in ("http:", "https:", "url(", "@import", "<script"))


def test_a_page_is_written_with_its_numbers_beside_it(tmp_path):
    target = save_page("<p>µ</p>", tmp_path / "new" / "page.html", {"a": 1})
    assert target.read_text(encoding="utf-8") == "<p>µ</p>"
    assert json.loads(target.with_suffix(".json").read_text()) == {"a": 1}
    assert sorted(os.listdir(target.parent)) == ["page.html", "page.json"]
    save_page(None, tmp_path / "only.json", {"b": 2})
    assert json.loads((tmp_path / "only.json").read_text()) == {"b": 2}


def test_a_link_keeps_pointing_where_it_points(tmp_path):
    real = tmp_path / "real.html"
    real.write_text("old")
    (tmp_path / "link.html").symlink_to(real)
    save_page("new", tmp_path / "link.html")
    assert (tmp_path / "link.html").is_symlink() and real.read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        save_page("through", pipe)
        assert os.read(reader, 100) == b"through" and pipe.is_fifo()
    finally:
        os.close(reader)


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"the report cannot be written to .*page\.html': "):
        save_page("x", tmp_path / "file" / "page.html")
