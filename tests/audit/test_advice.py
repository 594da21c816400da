"""Advice: what is planted in a model is found, and what would do harm is not advised."""

from __future__ import annotations

import pytest
import torch

from metastable.audit import audit
from metastable.audit.ablation import rounded
from metastable.audit.advice import KEPT, advise
from metastable.encoders import load
from tiny_encoders import configs, random_model

IDS = [list(range(5 + i, 30 + i)) for i in range(8)]


@pytest.fixture
def model():
    return random_model(configs()["bert"], seed=3)


def topics(model):
    return {advice.topic: advice for advice in advise(load(model), IDS)}


def test_heads_that_do_nothing_are_found(model):
    dead = [(0, 2), (2, 1), (1, 0), (1, 1)]
    with torch.no_grad():
        for l, h in dead:
            model.encoder.layer[l].attention.output.dense.weight[:, 8 * h : 8 * (h + 1)] = 0
    found = topics(model)["heads"]
    assert "4 of 9 heads" in found.sentence and found.kept == pytest.approx(1.0, abs=1e-6)
    assert found.control < found.kept and "0.2, 1.0, 1.1, 2.1" in found.evidence


def test_of_many_heads_some_are_tried_and_that_is_told(model, monkeypatch):
    """What advice costs is bounded: so many heads are drawn, and what was found says of how many."""
    monkeypatch.setattr("metastable.audit.advice.MOST_HEADS", 8)
    with torch.no_grad():  # five heads that do nothing, of which any eight hold at least four
        for block, width in zip(model.encoder.layer, (16, 16, 8), strict=True):
            block.attention.output.dense.weight[:, :width] = 0
    said: list[str] = []
    (found,) = [a for a in advise(load(model), IDS, said.append) if a.topic == "heads"]
    assert found.sentence.startswith("4 of 9 heads") and "(8 of 9 heads, drawn at random)" in found.evidence
    assert sum(line.startswith("advice: head ") for line in said) == 8 and "advice: head 8 of 8" in said


def test_a_block_that_does_nothing_is_found(model):
    """Post-norm blocks renormalise what they are given: with no update and a norm of one the input goes through."""
    block = model.encoder.layer[1]
    with torch.no_grad():
        for name in ("attention.output.dense", "output.dense"):
            part = block.get_submodule(name)
            part.weight.zero_()
            part.bias.zero_()
        for norm in (
            block.attention.output.LayerNorm,
            block.output.LayerNorm,
            model.encoder.layer[0].output.LayerNorm,
        ):
            norm.weight.fill_(1.0)
            norm.bias.zero_()
    found = topics(model)["blocks"]
    assert found.sentence.startswith("Block 1 ") and found.control < 0.999 < found.kept


def test_rounding_names_the_block_that_suffers(model):
    found = topics(model).get("rounding")
    assert found is not None and "8 bits" in found.sentence and found.kept >= KEPT
    with torch.no_grad():  # two blocks that are rounded already
        for l in (0, 1):
            for p in model.encoder.layer[l].parameters():
                if p.ndim == 2:
                    p.copy_(rounded(4)(p))
    assert "block is 2" in topics(model)["rounding"].sentence


def test_what_does_harm_is_not_advised(model):
    with torch.no_grad():  # attention that decides everything
        for block in model.encoder.layer:
            block.attention.output.dense.weight.mul_(30)
    found = topics(model)
    assert "heads" not in found and "blocks" not in found
    assert all(advice.kept >= KEPT for advice in found.values())


def test_advice_is_given_when_asked_for_and_changes_nothing(model):
    encoder = load(model)
    before = encoder.embed(IDS)
    report = audit(encoder, IDS, advice=True, loop_steps=2)
    assert torch.equal(encoder.embed(IDS), before)
    assert [a.topic for a in report.advice] and report.to_dict()["advice"][0]["kept"] >= KEPT
    assert "What you could do with this" in report.to_html()
    assert audit(encoder, IDS, loop_steps=2).advice == []


def test_shared_blocks_and_single_texts_get_no_advice_that_is_not_theirs():
    assert advise(load(random_model(configs()["bert"])), IDS[:1]) == []
    found = {advice.topic for advice in advise(load(random_model(configs()["albert"])), IDS)}
    assert not found & {"heads", "blocks", "rounding"}
