import html.parser
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from metastable.errors import InvalidInput, StorageError
from metastable.papers import ESTIMATE, Claim, Outcome, passed, verify, write_report
from metastable.papers.page import groups, render, sections
from sample_claims import BAD, RIVALLED, WARNED
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
    assert re.findall(r'<b class="(\w+)">(\d)</b>', text) == [
        ("holds", "4"), ("fails", "1"), ("inconclusive", "1"), ("open", "0")
    ]  # fmt: skip
    assert "Quick run, seed 3" in text


def headline(verdicts):
    return re.search(r'data-passed="(\w+)">([^<]*)<', render(verdicts)).groups()


def test_the_headline_is_the_exit_code():
    good, bad = verify([RIVALLED], jobs=1), verify([BAD], jobs=1)
    assert headline(good) == ("true", "Passed: every claim holds.") and passed(good)
    assert headline(good + bad)[0] == "false" and not passed(good + bad)
    waiting = [replace(bad[0], open="nobody knows")]
    assert headline(good + waiting) == ("true", "Passed: every claim holds, those declared open excepted.")
    assert "Open: nobody knows" in render(good + waiting)


def test_the_paper_s_claims_come_first_and_ours_apart():
    (theirs,), (other,) = verify([RIVALLED], jobs=1), verify([WARNED], jobs=1)
    ours = replace(other, source=ESTIMATE)
    first, second = groups([ours, theirs])
    assert first.title == "The paper: Concentration in the low-temperature regime" and first.verdicts == (theirs,)
    assert second.title == "metastable's own estimates" and second.count == "1 of 1 holds"
    assert groups([ours])[0].anchor == "ours" and groups([]) == []
    text = render([ours, theirs])
    assert text.index('id="claim-rivalled"') < text.index('id="claim-warned"')
    assert "Warned: UserWarning: twice said (2 times)" in text


def test_rivals_are_shown_with_what_they_give():
    rivalled = verify([RIVALLED], jobs=1)
    text = render(rivalled)
    for words in ("It is two.", "2 ± 0.1", "It is not.", "∞", ">fails</td>"):
        assert words in text
    assert "not excluded" not in text
    alive = replace(rivalled[0].rivals[0], verdict="holds")
    assert "not excluded" in render([replace(rivalled[0], rivals=(alive,))])


@pytest.mark.parametrize(
    "arguments",
    [
        {"verdicts": None}, {"verdicts": [1]}, {"verdicts": "abc"}, {"out": 3}, {"out": ""}, {"paper": "none"},
        {"paper": None}, {"quick": "no"}, {"seed": -1}, {"seed": 1.5}, {"prints": "no"},
    ],
)  # fmt: skip
def test_malformed_arguments_are_sentences(arguments, tmp_path):
    with pytest.raises(InvalidInput) as refused:
        write_report(**{"verdicts": [], "out": tmp_path} | arguments)
    assert len(str(refused.value)) < 200


def test_page_asks_for_nothing_from_the_network(page):
    class Links(html.parser.HTMLParser):
        found: list[str]

        def handle_starttag(self, tag, attrs):
            self.found += [value for key, value in attrs if key in ("src", "href") and value]

    links = Links()
    links.found = []
    links.feed(page.read_text(encoding="utf-8"))
    assert links.found and all(link.startswith("#") for link in links.found)


def test_every_figure_is_printed_as_png_and_of_a_full_run_as_pdf_too(page, tmp_path):
    names = {"lines", "map", "sphere", "circle", "deep", "spectra"}
    assert {file.name for file in (page.parent / "figures").iterdir()} == {f"{name}.png" for name in names}
    full = write_report(some_verdicts()[:1], tmp_path, quick=False)
    assert {file.name for file in (full.parent / "figures").iterdir()} == {"lines.png", "lines.pdf"}


def test_a_quick_run_of_all_papers_prints_its_figures_only_when_asked(tmp_path):
    one = [replace(some_verdicts()[0], claim="great-circle")]
    for prints, found in ((None, []), (True, ["great-circle.png"])):
        write_report(one, tmp_path, paper="all", quick=True, prints=prints)
        assert [file.name for file in tmp_path.glob("concentration/figures/*")] == found
    assert "claim-great-circle" in (tmp_path / "concentration" / "report.html").read_text(encoding="utf-8")


def test_portraits_and_phases_come_first_and_no_claim_comes_twice():
    made = sections(some_verdicts(), "paper")
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
