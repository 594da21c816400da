"""Sentences about the weights and the looped layers, for every outcome."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metastable.audit.heads import audit_weights
from metastable.audit.loop import audit_loops
from metastable.audit.rate import Rate
from metastable.audit.weight_findings import started, weight_findings


@pytest.fixture(scope="module")
def audited(tiny):
    weights = audit_weights(tiny("bert"))
    loops = audit_loops(tiny("bert"), weights, steps=2)
    none, all_ = Rate.of(0, 24), Rate.of(24, 24)
    return weights, [
        replace(
            p, undecided=0, ends_values=all_, ends_other=none, terminal_holds=True, first_products=none,
            first_rematched=none, forecast_early=False, early=False, early_holds=True,
        )
        for p in loops
    ]  # fmt: skip


def test_where_iterated_layers_end(audited):
    weights, ended = audited
    said = weight_findings(weights, ended)[0]
    assert said.sentence == "Iterated alone, all 3 layers end in the dominant space of sum A from most starts."
    assert said.confidence == "supported" and "24 of 24 (86% to 100%) in all 3 layers" in said.evidence
    missed = replace(ended[2], terminal_holds=False, ends_values=Rate.of(3, 24))
    said = weight_findings(weights, [*ended[:2], missed])[0]
    assert "layers 0 and 1 end in" in said.sentence and said.sentence.endswith("; layer 2 does not.")
    assert "3 of 24 (4% to 31%) in layer 2" in said.evidence
    open_ = replace(ended[2], terminal_holds=None, undecided=24, ends_values=Rate.of(0, 0))
    said = weight_findings(weights, [*ended[:2], open_])[0]
    assert (
        said.sentence.endswith("; of layer 2 it cannot be told.") and "24 of 72 starts undecided" in said.evidence
    )
    assert said.numbers["layers"] == {"yes": [0, 1], "no": [], "open": [2]}
    said = weight_findings(weights, [replace(p, terminal_holds=False) for p in ended])[0]
    assert said.sentence == "Iterated alone, no layer ends in the dominant space of sum A from most starts."
    said = weight_findings(weights, [missed, open_, open_])[0]  # "no layer ends" would claim what is open
    assert said.sentence.startswith("Iterated alone, layer 2 does not end in") and "cannot be told" in said.sentence
    said = weight_findings(weights, [open_] * 3)[0]
    assert said.sentence.startswith("Iterated alone: whether a layer ends in ") and "no layer" not in said.sentence


def test_no_difference_from_the_control_is_said_as_that(audited):
    weights, ended = audited
    shared = [replace(p, ends_other=Rate.of(20, 24)) for p in ended]
    said = weight_findings(weights, shared)[0]
    assert said.confidence == "weak" and "in all 3 layers there is no difference from the control" in said.sentence
    first = replace(
        ended[0], forecast_early=True, first_products=Rate.of(20, 24), first_rematched=Rate.of(19, 24), early=None,
        early_holds=None,
    )  # fmt: skip
    said = weight_findings(weights, [first, *ended[1:]])[1]
    assert (
        said.sentence.endswith("of layer 0 there is no difference from the control.") and said.confidence == "weak"
    )


def test_early_phases_beside_their_control(audited):
    weights, quiet = audited
    said = weight_findings(weights, quiet)[1]
    assert said.sentence == "No layer is forecast to gather in the space of M0 before that of sum A."
    assert said.confidence == "supported" and "control, re-matched heads: at most 0 of 24" in said.evidence
    first = replace(quiet[0], forecast_early=True, first_products=Rate.of(22, 24), early=True, early_holds=True)
    said = weight_findings(weights, [first, *quiet[1:]])[1]
    assert said.sentence.endswith(
        "layer 0, iterated alone, gathers in the space of M0 before that of sum A: layer 0 does."
    )
    assert "22 of 24 (74% to 98%) in layer 0" in said.evidence and said.confidence == "supported"
    wrong = replace(first, first_products=Rate.of(2, 24), early=False, early_holds=False)
    said = weight_findings(weights, [wrong, *quiet[1:]])[1]
    assert said.sentence.endswith("layer 0 does not, no more than re-matched heads.")
    assert said.confidence == "weak" and "right in 2, wrong in 1 and undecided in 0 of 3 layers" in said.evidence
    open_ = replace(first, first_products=Rate.of(11, 24), early=None, early_holds=None)
    assert weight_findings(weights, [open_, *quiet[1:]])[1].sentence.endswith("of layer 0 it cannot be told.")
    surprise = replace(quiet[1], first_products=Rate.of(22, 24), early=True, early_holds=False)
    said = weight_findings(weights, [quiet[0], surprise, quiet[2]])[1]
    assert said.sentence.endswith("; layer 1 does so without being forecast to.")


def test_the_evidence_says_from_where(audited):
    assert started(audited[1]) == "24 starts a layer (24 random) of 16, 32, 64 tokens"


def test_heads_of_random_weights_match_by_chance(audited):
    """|tr M_h| of a random head is no larger than that of other heads: chance is one head per layer."""
    said = weight_findings(*audited)[2]
    assert said.confidence == "weak" and said.evidence.endswith("chance would give about 3")
    assert said.sentence.endswith(": no more than by chance.")


def test_the_stable_rank_is_not_called_a_number_of_directions(audited):
    said = weight_findings(*audited)[3]
    assert "not the number of directions that updates use" in said.sentence
