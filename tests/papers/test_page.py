import html.parser
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from metastable.errors import StorageError
from metastable.papers import Claim, Outcome, verify, write_report
from metastable.papers.page import render, sections
from sample_figures import lines, phase_map, portrait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FIELDS = {"reason": "a test & <nothing> else", "source": "test"}


def some_verdicts():
    outcome = Outcome(1.0, curves={"x": np.zeros(1)}, table=[{"n": 3, "value": -0.5, "name": "a<b"}], note="noted")

    def claim(name, statement, figure, theme, expected=1.0):
        return Claim(name, statement, lambda s: outcome, expected, 0.1, figure=figure, theme=theme, **FIELDS)

    made = [
        claim("lines", "Curves rise.", lambda o: lines(), "One"),
        claim("map", "Phases.", lambda o: phase_map(), "One", expected=2.0),
        claim("sphere", "On S^2.", lambda o: portrait(3), "Two"),
        claim("circle", "On S^1.", lambda o: portrait(2), "Two"),
        claim("deep", "In R^5.", lambda o: portrait(5), "Two"),
        Claim("bare", "No figure.", lambda s: Outcome(float("nan")), 1.0, 0.1, theme="Two", **FIELDS),
    ]
    return verify(made, jobs=1)


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return write_report(some_verdicts(), tmp_path_factory.mktemp("report"), quick=True, seed=3)


def test_page_has_every_claim_escaped_and_counted(page):
    text = page.read_text(encoding="utf-8")
    for name in ("lines", "map", "sphere", "circle", "deep", "bare"):
        assert f'id="claim-{name}"' in text
    assert "a test &amp; &lt;nothing&gt; else" in text and "a&lt;b" in text
    assert re.findall(r'<b class="(\w+)">(\d)</b>', text) == [("holds", "4"), ("fails", "1"), ("inconclusive", "1")]
    assert "Quick run, seed 3" in text


def test_page_asks_for_nothing_from_the_network(page):
    class Links(html.parser.HTMLParser):
        found: list[str]

        def handle_starttag(self, tag, attrs):
            self.found += [value for key, value in attrs if key in ("src", "href") and value]

    links = Links()
    links.found = []
    links.feed(page.read_text(encoding="utf-8"))
    assert links.found and all(link.startswith("#") for link in links.found)


def test_every_figure_is_printed_as_png_and_pdf(page):
    names = {file.name for file in (page.parent / "figures").iterdir()}
    expected = {
        f"{name}.{kind}" for name in ("lines", "map", "sphere", "circle", "deep") for kind in ("png", "pdf")
    }
    assert names == expected | {"spectra.png", "spectra.pdf"}


def test_portraits_and_phases_come_first_and_no_claim_comes_twice():
    made = sections(some_verdicts())
    assert [section.title for section in made] == ["Phase portrait", "Phase diagram", "One", "Two"]
    named = [[item.verdict.claim if item.verdict else "spectra" for item in section.items] for section in made]
    assert named == [["sphere", "circle", "deep", "spectra"], ["map"], ["lines"], ["bare"]]


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        write_report([], tmp_path / "file")


def test_render_is_deterministic_up_to_the_names_of_plots():
    def without_ids(text):
        return re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "id", text)

    verdicts = some_verdicts()
    assert without_ids(render(verdicts)) == without_ids(render(verdicts))


@pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
def test_page_opens_in_chromium_without_network_or_error(page, tmp_path):
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--disable-component-update", "--disable-sync", "--no-first-run", "--use-gl=angle",
        "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={tmp_path}", "--enable-logging=stderr", "--v=0", "--virtual-time-budget=20000",
        "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr[-2000:]
    body = re.search(r"<body[^>]*>", done.stdout).group()
    assert 'data-errors="0"' in body, body
    assert 'data-plots="6"' in body, body
    # Drawn, not only placed: plotly puts its axes and scenes into the document.
    assert done.stdout.count("js-plotly-plot") >= 6 and done.stdout.count("main-svg") >= 6
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line and "rror" in line], done.stderr[
        -2000:
    ]
