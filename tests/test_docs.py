"""Every Python example in the documentation runs, and is short; every code of a formula resolves to a text."""

import re
import tokenize
from pathlib import Path

import pytest

from metastable.solve import METHODS

PAGES = sorted((Path(__file__).parents[1] / "docs").glob("*.md"))
BLOCKS = [
    pytest.param(page, code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))
]


@pytest.fixture(autouse=True)
def _methods_of_examples_are_forgotten():
    known = dict(METHODS)
    yield
    METHODS.clear()
    METHODS.update(known)


@pytest.mark.parametrize(("page", "code"), BLOCKS)
def test_an_example_runs(page, code, capsys):
    """Alone, as a reader would paste it; what it prints is finite."""
    exec(compile(code, str(page), "exec"), {"__name__": "example"})
    assert "nan" not in capsys.readouterr().out
    assert len([line for line in code.splitlines() if line.strip()]) <= 16


def test_the_examples_of_extending_do_what_they_say(capsys):
    """Strongly coupled oscillators synchronise, Heun's error is that of its order, and a settled run ends early."""
    codes = [block.values[1] for block in BLOCKS if block.values[0].stem == "extending"]
    flow, stepper, observer = ({"__name__": "example"} for _ in range(3))
    for code, scope in zip(codes, (flow, stepper, observer), strict=True):
        exec(code, scope)
    assert flow["ms"].observe.order_parameter(flow["path"].end) > 0.999
    exact = stepper["ms"].solve(stepper["flow"], stepper["path"].measure(0), t=2.0).end.points
    assert 1e-7 < float((stepper["path"].end.points - exact).abs().max()) < 1e-3
    assert observer["path"].end_time < 1000.0
    assert observer["path"].provenance["ended_by"] == "Settled"


LABEL = r"(?:T0\.\d|[BCEGKLMNPQRSVXYZ]\d{1,2})"
"""A code of docs/theory.md."""
NOTATION = {"M0"}
"""What looks like a code in parentheses and is a symbol of the text beside it."""


def cited():
    """(file, label) for every code in parentheses in texts and comments of sources, benchmarks and pages."""
    root = Path(__file__).parents[1]
    places = [*(root / "src").rglob("*.py"), *(root / "src").rglob("*.j2"), *(root / "benchmarks").glob("*.py")]
    for file in sorted(places + [root / "README.md"]):
        text = file.read_text()
        if file.suffix == ".py":
            kinds = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
            with file.open("rb") as stream:
                text = "\n".join(
                    token.string for token in tokenize.tokenize(stream.readline) if token.type in kinds
                )
        for group in re.findall(rf"\(({LABEL}(?:(?:, ?|-| and ){LABEL})*)[),;:]", text):
            for label in re.findall(LABEL, group):
                if label not in NOTATION:
                    yield file.relative_to(root), label


def test_every_code_of_a_formula_resolves():
    text = (Path(__file__).parents[1] / "docs" / "theory.md").read_text()
    anchors = re.findall(r'<a id="([^"]+)"></a>\*\*([^*]+)\*\*', text)
    assert all(anchor == shown for anchor, shown in anchors) and len(set(anchors)) == len(anchors)
    known = {anchor for anchor, _ in anchors}
    found = set(cited())
    assert len(found) > 40  # the search sees what it looks for
    assert sorted((str(file), label) for file, label in found if label not in known) == []
    assert set(re.findall(r"\]\(#([A-Z][\d.]+)\)", text)) <= known
