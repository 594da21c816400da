"""Reference values: what is stored, and that it can be measured again."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from metastable.audit import Advice, audit, read_corpus, reference_encoders
from metastable.audit.numbers import OF_TEXT, OF_WEIGHTS
from metastable.audit.reference_values import ReferenceEncoder, beside
from tiny_encoders import REAL_WEIGHTS


def test_what_is_stored_is_whole():
    known = {encoder.name: encoder for encoder in reference_encoders()}
    assert {"all-MiniLM-L6-v2", "paraphrase-MiniLM-L3-v2", "AntiBERTy"} <= set(known)
    for encoder in known.values():
        assert {*OF_WEIGHTS, *OF_TEXT} == set(encoder.values)
        (file, sha), *_ = encoder.weights.items()
        assert sha == REAL_WEIGHTS[file] and encoder.texts > 1


def test_a_report_stands_beside_them(tiny):
    report = audit(tiny("bert"), [list(range(5, 25)), list(range(30, 50))], loop_steps=2)
    rows = beside(report)
    assert [name for name, _, _ in rows] == list(report.numbers())
    tried = replace(report, advice=[Advice("length", "Cut.", "", 0.99, 0.5)])
    assert "advice_length" in tried.numbers() and beside(tried) == rows  # no other encoder was asked for it
    assert all(len(others) == len(reference_encoders()) for _, _, others in rows)
    assert "Beside known encoders" in report.to_html()
    record = ReferenceEncoder.of("tiny", "numbers", report)
    assert record.texts == 2 and record.values["kappa"] == pytest.approx(report.numbers()["kappa"], rel=1e-5)


@pytest.mark.slow
def test_the_stored_numbers_are_measured_again(minilm):
    stored = next(e for e in reference_encoders() if e.name == "all-MiniLM-L6-v2")
    assert hashlib.sha256(minilm.files[0].read_bytes()).hexdigest() in stored.weights.values()
    prose = read_corpus(Path(__file__).parent / "prose.txt", max_tokens=128)
    found = audit(minilm, prose, max_tokens=128, loop_steps=1).numbers()
    for name, value in stored.values.items():
        if name != "attention_error":
            assert found[name] == pytest.approx(value, rel=1e-4, abs=1e-4), name
