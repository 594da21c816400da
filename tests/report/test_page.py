import html.parser
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from metastable import AttentionWeights, sphere
from metastable.errors import InvalidInput
from metastable.papers import Claim, Finding, Lines, PhaseMap, Portrait, Series, verify
from metastable.report import draw, render, spectra, write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FIELDS = {"reason": "a test & <nothing> else", "source": "test"}


def curves(finding):
    x = np.arange(1.0, 4.0)
    styles = ("line", "dashed", "dotted", "points", "steps")
    series = [Series(x, x * (i + 1), f"curve {i}", style, shade=0.5) for i, style in enumerate(styles)]
    return Lines("Curves", "time t", "value", series, log_x=True, log_y=True, y_floor=0.5)


def phase_map(finding):
    return PhaseMap("Phases", np.arange(3.0), np.array([4.0, 16.0]), np.array([[0, 1, 2], [0, 0, 1]]))


def tokens(d):
    x = sphere.uniform(20, d, seed=0).numpy()
    points = np.stack([x, x[::-1]])
    return lambda finding: Portrait(
        "Tokens", np.array([0.0, 1.0]), points, np.full(20, 0.05), np.diag(np.arange(d) + 1.0), np.eye(d), 2.0
    )


def some_verdicts():
    finding = Finding(1.0, curves={"x": np.zeros(1)}, table=[{"n": 3, "value": -0.5, "name": "a<b"}], note="noted")
    made = [
        Claim("lines", "Curves rise.", lambda s: finding, 1.0, 0.1, figure=curves, theme="One", **FIELDS),
        Claim("map", "Phases.", lambda s: finding, 2.0, 0.1, figure=phase_map, theme="One", **FIELDS),
        Claim("sphere", "On S^2.", lambda s: finding, 1.0, 0.1, figure=tokens(3), theme="Two", **FIELDS),
        Claim("circle", "On S^1.", lambda s: finding, 1.0, 0.1, figure=tokens(2), theme="Two", **FIELDS),
        Claim("deep", "In R^5.", lambda s: finding, 1.0, 0.1, figure=tokens(5), theme="Two", **FIELDS),
        Claim("bare", "No figure.", lambda s: Finding(float("nan")), 1.0, 0.1, theme="Two", **FIELDS),
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


def test_unknown_drawings_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="cannot draw a str"):
        draw("nonsense", tmp_path / "x.png")


def test_spectra_of_a_rotation(tmp_path):
    w = AttentionWeights(V=[[1.0, -1.0], [0.5, 1.0]], B=np.eye(2))
    assert spectra(w, tmp_path / "s.png")[0].stat().st_size > 1000


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
