"""Two encoders on the same texts: planted changes are found, chance is not called a change."""

from __future__ import annotations

import json
import re

import pytest
import torch

from metastable.audit import compare
from metastable.audit.compare import _bound
from metastable.encoders import load
from metastable.errors import InvalidInput, MetastableError
from tiny_encoders import configs, random_model


def texts(count, seed=0):
    g = torch.Generator().manual_seed(seed)
    return [torch.randint(5, 60, (20,), generator=g).tolist() for _ in range(count)]


@pytest.fixture(scope="module")
def pair():
    """The same model, and one whose head 1 of layer 2 (the last) has colder scores."""
    first, second = random_model(configs()["bert"]), random_model(configs()["bert"])
    with torch.no_grad():
        second.encoder.layer[2].attention.self.query.weight[8:16] *= 1.5
        second.encoder.layer[2].attention.self.query.bias[8:16] *= 1.5
    return load(first, name="before"), load(second, name="after")


def test_the_head_that_changed_comes_first(pair, tmp_path):
    found = compare(*pair, texts(12))
    top = next(c for c in found.changes if c.head is not None)
    assert (top.layer, top.head) == (2, 1) and top.clear and top.error > 0
    kappa = next(c for c in found.changes if "inverse temperature" in c.quantity and (c.layer, c.head) == (2, 1))
    assert kappa.after == pytest.approx(1.5 * kappa.before, rel=1e-6) and kappa.clear
    elsewhere = [c for c in found.changes if c.layer is not None and (c.layer, c.head) != (2, 1)]
    assert elsewhere and not any(c.clear for c in elsewhere)
    assert all(abs(c.difference) < 1e-9 for c in elsewhere)
    moved = found.moved[0]
    assert (moved.layer, moved.head, moved.values) == (2, 1, pytest.approx(0, abs=1e-6))
    assert moved.scores == pytest.approx(0.5, rel=1e-6)
    assert "layer 2 head 1: its scores by 50.0%" in " ".join(found.sentences())
    page = found.save(tmp_path / "c.html").read_text()
    assert "before → after" in page and not re.search(r"https?://|<script", page)
    numbers = json.loads((tmp_path / "c.json").read_text())
    assert len(numbers["moved"]) == 9 and numbers["changes"][0]["clear"]


def test_the_error_is_that_of_paired_differences(pair):
    found = compare(*pair, texts(12))
    from metastable.audit.traffic import Traffic

    one, other = (Traffic.of(e, texts(12)).heads["entropy"][:, 2, 1] for e in pair)
    change = next(c for c in found.changes if "entropy" in c.quantity and (c.layer, c.head) == (2, 1))
    gap = other - one
    assert change.difference == pytest.approx(float(gap.mean()), rel=1e-9)
    assert change.error == pytest.approx(float(gap.std()) / 12**0.5, rel=1e-9)


def test_a_model_against_itself(pair):
    found = compare(pair[0], pair[0], texts(6))
    assert not any(c.clear for c in found.changes) and found.embedding_cosine == pytest.approx(1)
    assert found.agreement == pytest.approx(1) and "All heads have the same weights." in found.sentences()
    assert found.names == ("before", "before (2)")


def test_chance_is_not_a_change():
    """The bound grows with the comparisons, and rounding of the weights is no change of the model."""
    assert _bound(300, 16) > 4.5 and _bound(1, 10**6) == pytest.approx(1.96, abs=1e-2)
    model = load(random_model(configs()["bert"]))
    shifted = random_model(configs()["bert"])
    with torch.no_grad():  # noise of rounding size in the weights
        for p in shifted.parameters():
            p.add_(1e-7 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1)))
    found = compare(model, load(shifted), texts(8))
    assert sum(c.clear for c in found.changes) <= 2


def test_two_architectures_are_compared_as_a_whole(tiny):
    found = compare(tiny("bert"), tiny("distilbert"), texts(6))
    assert not found.moved and all(c.layer is None for c in found.changes) and len(found.changes) == 5
    assert found.agreement is not None and found.embedding_cosine is not None
    assert "the model" in found.to_html()
    with pytest.raises(InvalidInput, match="only be compared on texts"):
        compare(tiny("bert"), tiny("distilbert"))


def test_weights_alone_and_a_single_text(pair):
    assert compare(*pair).changes == [] and compare(*pair).moved[0].head == 1
    found = compare(*pair, texts(1))
    assert not any(c.clear for c in found.changes) and found.changes[0].error is None


@pytest.mark.parametrize(
    ("arguments", "options"),
    [((None, None), {}), (("./nowhere", 3), {}), ((3,), {"second": 3}), (([], {}), {"max_texts": 0})],
)
def test_nonsense_is_one_sentence(arguments, options):
    with pytest.raises(MetastableError) as caught:
        compare(*arguments, **options)
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)


def test_limits_are_checked(pair):
    for options in ({"max_texts": 0}, {"max_tokens": -1}, {"names": ["one"]}, {"report": 3}):
        with pytest.raises(InvalidInput):
            compare(*pair, texts(2), **options)
