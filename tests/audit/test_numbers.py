"""The numbers of an audit by short names, recomputed from its JSON."""

from __future__ import annotations

import statistics

import pytest

from metastable.audit import audit, compare
from metastable.audit.numbers import OF_TEXT, OF_WEIGHTS

IDS = [list(range(5 + i, 25 + i)) for i in range(4)]


def test_numbers_are_those_of_the_record(tiny):
    report = audit(tiny("bert"), IDS, loop_steps=2)
    found, record = report.numbers(), report.to_dict()
    assert set(found) == {*OF_WEIGHTS, *OF_TEXT}
    assert found["kappa"] == statistics.median(h["kappa"] for h in record["weights"]["heads"])
    assert found["sink_heads"] == sum(h["sink"] >= 0.25 for h in record["text"]["heads"]) / 9
    assert found["entropy"] == pytest.approx(statistics.mean(l["entropy"] for l in record["text"]["layers"]))
    assert set(audit(tiny("bert"), loop_steps=2).numbers()) == set(OF_WEIGHTS)


def test_numbers_of_a_comparison(tiny):
    found = compare(tiny("bert"), tiny("bert"), IDS).numbers()
    assert found["moved_scores"] == pytest.approx(0, abs=1e-7) and found["clear_changes"] == 0
    assert compare(tiny("bert"), tiny("distilbert"), IDS).numbers()["moved_scores"] is None
