"""The first page: its order, and no more than was measured."""

from __future__ import annotations

import pytest

from metastable.audit import audit
from metastable.audit.findings import LIMITS, findings

IDS = [list(range(5, 30)), list(range(40, 20, -1))]


@pytest.fixture(scope="module")
def report(tiny):
    return audit(tiny("bert"), IDS, loop_steps=5)


def test_report_claims_no_more_than_was_measured(report):
    page = report.to_html()
    assert "stacked-layer movement is not forecast" in page
    assert {f.confidence for f in report.findings} <= {"measured", "supported", "weak"}
    assert not next(a for a in report.scorecard if a.name == "Attention only").holds
    # Random weights have no matched heads: nothing may be "supported" there.
    matching = next(f for f in report.findings if "values match their own scores" in f.sentence)
    assert matching.confidence == "weak"


def test_the_check_of_the_weights_comes_first(tiny, report):
    encoder = tiny("bert")
    said = findings(encoder, report.weights, report.text, report.loops)
    assert said == report.findings
    assert said[0].sentence.startswith("The weights were read correctly")
    assert "on the given texts, up to 25 tokens long" in said[0].sentence
    assert f"{report.text.verification.attention_error:.1e}" in said[0].evidence
    alone = findings(encoder, report.weights, None, report.loops)
    assert len(alone) == 6 and alone[1].confidence == "weak" and "a text would" in alone[1].sentence
    assert alone[2:] == said[-4:] and f"{encoder.verification.attention_error:.1e}" in alone[0].evidence


def test_limits_stand_on_the_page(report):
    assert report.limits == LIMITS and all(limit.endswith(".") for limit in LIMITS)
