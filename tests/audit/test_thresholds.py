"""Thresholds: as they are written, what they are about, and when they fail an audit."""

from __future__ import annotations

import pytest

from metastable.audit import Threshold
from metastable.errors import InvalidInput

KNOWN = {"sink_heads": 0.4, "agreement": None}
RECORD = {"text": {"layers": [{"kappa": 3.0}], "item": "text"}}


@pytest.mark.parametrize(
    ("written", "crossed"),
    [
        ("sink_heads>0.5", False), ("sink_heads>0.3", True), (" sink_heads <= 4e-1 ", True),
        ("sink_heads<.4", False), ("text.layers.0.kappa>=3", True), ("sink_heads>=-1", True),
    ],
)  # fmt: skip
def test_written_and_decided(written, crossed):
    sentence = Threshold.read(written).crossed(KNOWN, RECORD)
    assert (sentence is not None) is crossed
    if sentence:
        assert sentence.startswith(written.split(">")[0].split("<")[0].strip())


@pytest.mark.parametrize(
    "written", ["", "sink", "sink>", ">3", "sink>x", "sink=3", "sink>nan", "a b>3", None, 3, []]
)
def test_what_is_no_threshold_is_refused(written):
    with pytest.raises(InvalidInput) as caught:
        Threshold.read(written)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sinkheads", "known are sink_heads, agreement"), ("agreement", "was not measured"),
        ("text.item", "was not measured"), ("text.layers.7.kappa", "unknown number"),
    ],
)  # fmt: skip
def test_a_number_that_is_not_there(name, told):
    with pytest.raises(InvalidInput, match=told):
        Threshold(name, "<", 1.0).crossed(KNOWN, RECORD)
