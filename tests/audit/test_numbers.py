"""The numbers of an audit by short names, recomputed from its JSON."""

from __future__ import annotations

import statistics

import pytest

from metastable.audit import audit, compare, numbers
from metastable.audit.numbers import OF_TEXT, OF_WEIGHTS

IDS = [list(range(5 + i, 25 + i)) for i in range(4)]


def test_numbers_are_those_of_the_record(tiny):
    report = audit(tiny("bert"), IDS, loop_steps=2)
    found, record = numbers(report), report.to_dict()
    assert set(found) == {*OF_WEIGHTS, *OF_TEXT}
    assert found["kappa"] == statistics.median(h["kappa"] for h in record["weights"]["heads"])
    assert found["sink_heads"] == sum(h["sink"] >= 0.25 for h in record["text"]["heads"]) / 9
    assert found["entropy"] == pytest.approx(statistics.mean(l["entropy"] for l in record["text"]["layers"]))
    assert set(numbers(audit(tiny("bert"), loop_steps=2))) == set(OF_WEIGHTS)


def test_numbers_of_a_comparison(tiny):
    found = numbers(compare(tiny("bert"), tiny("bert"), IDS))
    assert found["moved_scores"] == pytest.approx(0, abs=1e-7) and found["clear_changes"] == 0
    assert numbers(compare(tiny("bert"), tiny("distilbert"), IDS))["moved_scores"] is None
