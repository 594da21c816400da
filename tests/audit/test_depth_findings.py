"""The sentence about depth, for every course."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metastable.audit.depth import depth_points
from metastable.audit.depth_findings import depth_finding
from metastable.audit.text import audit_text


@pytest.fixture(scope="module")
def text(tiny):
    return audit_text(tiny("bert"), [list(range(5, 30)), list(range(40, 20, -1))])


@pytest.mark.parametrize(
    ("curve", "told"),
    [
        ([0.1, 0.2, 0.3, 0.4], "more alike at the output than at the input."),
        ([0.5, 0.4, 0.3, 0.2], "less alike at the output than at the input."),
        ([0.3, 0.5, 0.6, 0.3], "as the input; they are most alike in between, at the input of layer 2."),
        ([0.6, 0.1, 0.3, 0.4], "than at the input; they are least alike in between, at the input of layer 1."),
    ],
)
def test_every_course(text, curve, told):
    ranks = [[3.0] * 4] * 2
    said = depth_finding(replace(text, depth=depth_points([curve, curve], ranks)))
    assert said.sentence.endswith(told.replace("as the input", "as at the input")) and said.confidence == "measured"
    assert ", ".join(f"{c:.2f}" for c in curve) in said.evidence
    assert said.numbers["cosine"] == pytest.approx(curve)


def test_what_cannot_be_told_is_said_as_that(text):
    found = depth_points([[0.1, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1, 0.3]], [[3.0] * 4] * 2)
    assert "cannot be told" in depth_finding(replace(text, depth=found)).sentence


def test_all_points_are_told(text):
    said = depth_finding(text)
    assert len(text.depth) == len(text.layers) + 1 == len(said.numbers["cosine"])
    assert "at the input of layers 0-2 and at the output" in said.evidence
