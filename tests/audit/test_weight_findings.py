"""Sentences about the weights and the looped layers, for every outcome."""

from __future__ import annotations

from dataclasses import replace

import pytest

from metastable.audit.heads import audit_weights
from metastable.audit.loop import audit_loops
from metastable.audit.weight_findings import weight_findings


@pytest.fixture(scope="module")
def audited(tiny):
    weights = audit_weights(tiny("bert"))
    return weights, audit_loops(tiny("bert"), weights, steps=2)


def test_where_iterated_layers_end(audited):
    weights, loops = audited
    ended = [replace(p, terminal_holds=True, terminal_energy=0.97, terminal_wrong_layer=0.1) for p in loops]
    said = weight_findings(weights, ended)[0]
    assert (
        said.sentence.startswith("Iterated alone, all 3 layers end where the weights say")
        and "does" not in said.sentence
    )
    assert said.confidence == "supported" and "at least 97% of the energy (asked: 95%)" in said.evidence
    said = weight_findings(weights, [*ended[:2], replace(ended[2], terminal_holds=False)])[0]
    assert "layers 0 and 1 end where" in said.sentence and said.sentence.endswith("; layer 2 does not.")
    none = [replace(p, terminal_holds=False, settled=False) for p in loops]
    said = weight_findings(weights, none)[0]
    assert said.sentence == "Iterated alone, no layer ends in the dominant space of its values sum A."
    assert said.evidence.endswith("3 of 3 were still moving")


def test_an_end_that_another_layer_shares_is_weak(audited):
    weights, loops = audited
    shared = [replace(p, terminal_holds=True, terminal_wrong_layer=0.6) for p in loops]
    assert weight_findings(weights, shared)[0].confidence == "weak"


def test_early_phases_beside_their_control(audited):
    weights, loops = audited
    quiet = [replace(p, forecast_early=False, passed_early=False, early_holds=True) for p in loops]
    said = weight_findings(weights, quiet)[1]
    assert (
        said.sentence == "No layer is forecast to have a separate early phase." and said.confidence == "supported"
    )
    first = replace(
        quiet[0], forecast_early=True, passed_early=True, early_energy=0.4, early_rolled_heads=0.1, early_holds=True
    )
    said = weight_findings(weights, [first, *quiet[1:]])[1]
    assert (
        "layer 0, iterated alone, first gathers in the space of M0, a phase of its own: it does." in said.sentence
    )
    assert "peak energy there 40% (re-matched heads 10%), asked 25%" in said.evidence
    said = weight_findings(weights, [replace(first, passed_early=False, early_holds=False), *quiet[1:]])[1]
    assert said.sentence.endswith("it does not.") and said.confidence == "weak"


def test_heads_of_random_weights_match_by_chance(audited):
    """|tr M_h| of a random head is no larger than that of other heads: chance is one head per layer."""
    said = weight_findings(*audited)[2]
    assert said.confidence == "weak" and said.evidence.endswith("chance would give about 3")
