"""Sentences about text: ties are told as ties, short texts as weak."""

from __future__ import annotations

import torch

from metastable.audit import audit
from metastable.audit.text_findings import temperature_on_text, text_findings
from metastable.encoders import load
from tiny_encoders import configs, random_model

IDS = [list(range(5, 30)), list(range(40, 20, -1))]


def test_ties_are_told_as_ties():
    """Scores of zero: attention is the mean, so no forecast that reads scores may be called the best."""
    model = random_model(configs()["bert"])
    with torch.no_grad():
        for block in model.encoder.layer:
            block.attention.self.query.weight.mul_(1e-4)
            block.attention.self.query.bias.zero_()
    report = audit(load(model), IDS, loop_steps=3)
    (best,) = [f for f in report.findings if "forecast" in f.sentence and "adds to a token" in f.sentence]
    assert (
        "scores add next to nothing" in best.sentence and "the best within 0.02 in 3 of 3 layers" in best.evidence
    )
    (kept,) = [f for f in report.findings if "substitutes for softmax" in f.sentence]
    assert "gaussian with sinks, mean with sinks, gaussian and mean keep" in kept.sentence


def test_nothing_measured_on_short_texts_is_more_than_weak(tiny):
    short = audit(tiny("bert"), [[5, 6, 7, 8, 9], [10, 11, 12]], loop_steps=2).text
    said = text_findings(short)
    assert said[0].sentence == "The texts are too short to say much: 4 tokens each, special tokens included."
    judged = [said[0], temperature_on_text(short), *(f for f in said if "forecast" in f.sentence)]
    assert {f.confidence for f in judged} == {"weak"}


def test_cold_scores_are_told_from_a_limit_that_is_reached(tiny):
    """Random weights have large scores; that the zero-temperature limit forecasts them is another matter."""
    text = audit(tiny("bert"), IDS, loop_steps=2).text
    ratios = [layer.kappa_over_dimension for layer in text.layers]
    sentence = temperature_on_text(text).sentence
    assert ("cold by the size of its scores" in sentence) == (min(ratios) > 3)
    assert ("does not forecast it" in sentence or "not reached" in sentence) == (
        sum(f.cosine["zero_temperature"] for f in text.forecasts) / len(text.forecasts) < 0.9
    )
