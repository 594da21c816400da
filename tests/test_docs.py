"""Every Python example in the documentation runs, and is short."""

import re
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
