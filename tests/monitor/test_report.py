import json
from html.parser import HTMLParser

import pytest

from metastable.errors import InvalidInput
from metastable.monitor import report
from walks import walks


@pytest.fixture(scope="module")
def made(monitor):
    texts = walks(60, 21)
    texts[40:48] = [[7 + i] * 20 for i in range(8)]
    texts[5] = [6, 7]
    return report(monitor, texts, documents=range(60))


def test_the_numbers_are_those_of_the_monitor(made, monitor) -> None:
    assert len(made.scores) == len(made.wealth) == 60
    assert [i for i, score in enumerate(made.scores) if score.alarm][-1] >= 47
    assert not made.scores[5].in_range and made.wealth[5] == made.wealth[4]
    plain = json.loads(json.dumps(made.to_dict(), allow_nan=False))
    assert plain["drift"]["alarms"] == sum(score.alarm for score in made.scores)


def test_the_page_shows_every_part_and_is_whole(made, monitor, tmp_path) -> None:
    path = made.save(tmp_path / "monitor.html")
    page = path.read_text()
    assert json.loads((tmp_path / "monitor.json").read_text())["schema"] == "metastable/monitor-report/1"
    for name in (
        "struct",
        "typ",
        "win",
        "lay",
        "emb",
        "lex",
        "attention",
        "dynamics",
        "<mark",
        "outside the range",
    ):
        assert name in page
    assert "http://" not in page and "https://" not in page and "nan" not in page.lower().split("<svg")[1]
    HTMLParser().feed(page)


def test_texts_are_escaped(monitor, made) -> None:
    from dataclasses import replace

    strange = replace(made, texts=[[("<script>alert(1)</script>", 1.0)] for _ in made.texts])
    assert "<script>" not in strange.to_html()


def test_no_text_and_no_alarm_make_a_page(monitor) -> None:
    assert "No text alarmed" in report(monitor, [[5, 6]]).to_html()
    assert "No text alarmed" in report(monitor, []).to_html()


def test_what_is_no_monitor_is_refused() -> None:
    with pytest.raises(InvalidInput, match="monitor must be a Monitor"):
        report("monitor", [])
