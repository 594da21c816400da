"""Sentences about text: ties are told as ties, short texts as weak."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
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
    assert "gaussian with sinks and mean with sinks keep most" in kept.sentence


def test_nothing_measured_on_short_texts_is_more_than_weak(tiny):
    report = audit(tiny("bert"), [[5, 6, 7, 8, 9], [10, 11, 12]], loop_steps=2)
    short, said = report.text, text_findings(report.text, report.weights)
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


@pytest.fixture(scope="module")
def report(tiny):
    return audit(tiny("bert"), [[5 + (i * k) % 50 for i in range(40)] for k in (1, 3, 7)], loop_steps=2)


def named(report, name, **changed):
    (found,) = [f for f in text_findings(replace(report.text, **changed), report.weights) if f.name == name]
    return found


def test_sinks_are_told_over_length(report):
    said = named(report, "sinks")
    heavy = sum(head.sink >= 0.25 for head in report.text.heads)
    curve = [point.sink_heads for point in report.text.lengths]
    assert said.sentence.startswith(f"At 40 tokens a text, {heavy or 'none'} of 9 heads")
    assert f"; in 3 texts that reach 32 tokens it is {curve[0]} at 8 tokens and {curve[-1]} at 32" in said.sentence
    assert said.numbers["over_length"] == curve and said.numbers["lengths"] == [8, 16, 32]
    none = named(report, "sinks", heads=[replace(head, sink=0.1) for head in report.text.heads])
    assert re.search(r"none of 9 heads \(.* texts\) sends a quarter", none.sentence)
    assert "the largest share is 10%" in none.evidence


def test_temperature_is_told_over_length(report):
    said = temperature_on_text(report.text)
    assert said.sentence.startswith("At 40 tokens a text, ")
    assert all(f" at {n}" in said.evidence for n in (8, 16, 32))


def test_heads_that_copy_need_more_than_chance_and_error(report):
    heads = [replace(head, copying=0.01, copying_error=0.001) for head in report.text.heads]
    assert named(report, "copying", heads=heads).sentence.startswith(
        "0 of 9 heads (0 on other such texts) copy what they attend, 0 (0) suppress"
    )
    heads[0] = replace(heads[0], copying=0.9)
    heads[1] = replace(heads[1], copying=-0.9)
    heads[2] = replace(heads[2], copying=0.9, copying_error=0.6)
    said = named(report, "copying", heads=heads)
    assert said.sentence == (
        "1 of 9 heads (1 to 2 on other such texts) copy what they attend, 1 (1) suppress it, and 7 do neither."
    )
    assert "the sign of tr M agrees in " in said.evidence and " of 2 (" in said.evidence
    alone = named(report, "copying", heads=heads, texts=1)
    assert alone.numbers["copies"] == 0 and alone.confidence == "weak"


def test_measured_directions_are_told(report):
    said = named(report, "directions")
    assert said.numbers["directions"] == [layer.directions for layer in report.text.layers]


def test_substitutes_are_compared_like_with_like(report):
    """The plain Gaussian is not compared with one that attends first and last token exactly."""
    closures = {"gaussian_with_sinks": 0.5, "mean_with_sinks": 0.4, "argmax": 0.7, "gaussian": 0.9, "mean": 0.9}
    said = named(
        report,
        "closures",
        closures=closures | {"none": 0.1},
        closures_spread=dict.fromkeys([*closures, "none"], 0.01),
    )
    assert ", argmax keeps most of the final embedding." in said.sentence and said.confidence == "supported"
    none = named(
        report,
        "closures",
        closures=closures | {"none": 0.69},
        closures_spread=dict.fromkeys([*closures, "none"], 0.01),
    )
    assert none.sentence.endswith("with no difference from no attention at all.") and none.confidence == "weak"


def test_a_forecast_no_better_than_its_control_is_told_as_that(report):
    steps = [
        replace(
            f, cosine={**dict.fromkeys(f.cosine, 0.1), "gaussian": 0.8}, control={**f.control, "gaussian": 0.79}
        )
        for f in report.text.forecasts
    ]
    said = named(report, "forecast", forecasts=steps)
    assert said.sentence.endswith("(Gaussian tilt), with no difference from the control.")
    assert said.confidence == "weak"


def test_forecasts_that_tie_are_told_together(report):
    cosine = {"zero_temperature": 0.1, "gaussian": 0.8, "uniform": 0.1, "argmax": 0.79}
    steps = [replace(f, cosine=cosine) for f in report.text.forecasts]
    assert (
        "(Gaussian tilt) and alike by each token's best key alone"
        in named(report, "forecast", forecasts=steps).sentence
    )


def test_sinks_near_the_threshold_are_told_as_such(report):
    heads = [replace(head, sink=0.5, sink_error=0.01) for head in report.text.heads]
    heads[0], heads[1] = (
        replace(heads[0], sink=0.26, sink_error=0.02),
        replace(heads[1], sink=0.24, sink_error=0.02),
    )
    said = named(report, "sinks", heads=heads)
    assert "8 of 9 heads (7 to 9 on other such texts) send" in said.sentence
    assert "on other such" not in named(report, "sinks", heads=heads, texts=1).sentence
