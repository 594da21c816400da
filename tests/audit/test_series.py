from __future__ import annotations

import json
import re

import pytest
import torch

from metastable.audit import audit_series
from metastable.audit.series import _scale
from metastable.encoders import load
from metastable.errors import InvalidInput
from tiny_encoders import configs, random_model

IDS = [list(range(5, 30)), list(range(40, 20, -1))]


def test_series_follows_a_change(tmp_path):
    """The same model with its scores doubled: kappa doubles and nothing else of the values moves."""
    first, second = random_model(configs()["bert"]), random_model(configs()["bert"])
    with torch.no_grad():
        for block in second.encoder.layer:
            block.attention.self.query.weight.mul_(2)
    series = audit_series([load(first), load(second)], IDS, names=["before", "after"], loop_steps=5)
    table = series.table()
    before, after = table["kappa of the weights (median head)"]
    assert after == pytest.approx(2 * before, rel=1e-6)
    before, after = table["Re lambda(sum A), largest layer"]
    assert after == pytest.approx(before, rel=1e-12)
    assert any(
        "kappa of the weights (median head) rose" in line.replace("Kappa", "kappa") for line in series.sentences()
    )
    page = series.save(tmp_path / "series.html").read_text()
    assert "before → after" in page and not re.search(r"https?://|<script", page)
    assert len(json.loads((tmp_path / "series.json").read_text())["reports"]) == 2


def test_series_opens_one_model_at_a_time(tiny):
    """From an iterator the next model is opened when the one before it is done: long trainings fit in memory."""
    heard = []

    def models():
        for i in range(3):
            heard.append(f"open {i}")
            yield tiny("bert")

    series = audit_series(models(), names=list("abc"), loop_steps=2, report=lambda line: heard.append(line[0]))
    assert heard.index("open 1") > heard.index("a") and heard.index("open 2") > heard.index("b")
    page = series.to_html()
    assert page.count("dominant eigenvalues along the series") == 3 and "(of another layer)" in page
    with pytest.raises(InvalidInput, match="at least two models, got 1"):
        audit_series(iter([tiny("bert")]), loop_steps=2)


def test_series_needs_one_architecture(tiny):
    with pytest.raises(InvalidInput, match="one architecture"):
        audit_series([tiny("bert"), tiny("distilbert")], loop_steps=2)
    with pytest.raises(InvalidInput, match="at least two"):
        audit_series([tiny("bert")])


def test_a_json_path_gives_the_numbers_alone(tiny, tmp_path):
    series = audit_series([tiny("bert"), tiny("bert")], names=["a", "b"], loop_steps=2)
    series.save(tmp_path / "series.json")
    assert [f.name for f in tmp_path.iterdir()] == ["series.json"]
    assert series.sentences() == ["Nothing moved by as much as 10% along the series."]


def test_what_moves_and_comes_back_is_told():
    """All members are compared, not only the first and the last."""
    models = [random_model(configs()["bert"]) for _ in range(3)]
    with torch.no_grad():
        for block in models[1].encoder.layer:
            block.attention.self.query.weight.mul_(2)
    series = audit_series(map(load, models), names=["early", "middle", "late"], loop_steps=2)
    line = next(line for line in series.sentences() if line.startswith("Kappa of the weights"))
    low, high = series.table()["kappa of the weights (median head)"][:2]
    assert f"rose from {low:.3g} to {high:.3g} (middle), then fell to {low:.3g} (late)" in line


def test_counts_are_measured_by_how_many_there_are():
    assert _scale("heads with a complex dominant pair (of 72)", 3.0, 5.0) == 72.0
    assert _scale("kappa on text (median layer)", -3.0, 2.0) == 3.0
    assert _scale("kappa on text (median layer)", 0.0, 0.0) == 1e-12
