"""The first page: its order, no more than was measured, and every sentence computed anew on two families."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from scipy.stats import binomtest

from metastable.audit import audit
from metastable.audit.findings import LIMITS, findings
from metastable.encoders import load
from recompute_audit import denied, recompute, words
from tiny_encoders import configs, random_model

TEXTS = [[5 + (i * k + k) % 50 for i in range(n)] for k, n in ((1, 40), (3, 33), (7, 50), (11, 60), (13, 20))]
LOOSE = {"attention_error"}
"""Rounding errors, of which only the size can be compared."""
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


def close(mine, told, where):
    """Numbers agree to the digits that a model in float32 has, words and counts to the letter."""
    if isinstance(mine, dict):
        for key, value in mine.items():
            if key not in LOOSE:
                close(value, told[key], f"{where}.{key}")
    elif isinstance(mine, list):
        assert len(mine) == len(told), where
        for i, (a, b) in enumerate(zip(mine, told, strict=True)):
            close(a, b, f"{where}[{i}]")
    elif isinstance(mine, float):
        assert told == pytest.approx(mine, rel=1e-3, abs=2e-4), where
    else:
        assert mine == told, where


@pytest.fixture(scope="module", params=["bert", "mpnet"])
def both(request):
    torch.manual_seed(0)
    model = random_model(configs()[request.param], seed=4)
    model.set_attn_implementation("eager")
    told = json.loads(json.dumps(audit(load(model), TEXTS, loop_steps=60, seed=3).to_dict()))
    return recompute(model, TEXTS, told, seed=3), told


def test_every_finding_has_a_name_and_is_computed_anew(both):
    mine, told = both
    assert {finding["name"] for finding in told["findings"]} == set(mine)
    assert len(told["findings"]) == len(mine)


def test_the_numbers_of_every_finding(both):
    mine, told = both
    for finding in told["findings"]:
        close(mine[finding["name"]], finding["numbers"], finding["name"])
    assert mine["rebuilt"]["attention_error"] < 1e-5


def test_the_words_of_every_sentence(both):
    mine, told = both
    said = words(mine)
    for finding in told["findings"]:
        for word in said[finding["name"]]:
            assert word in finding["sentence"], finding["name"]


def test_the_verdicts_follow_from_the_numbers(both):
    """Which layers end where, by Wilson's interval and nothing else."""
    mine, told = both
    (finding,) = [f for f in told["findings"] if f["name"] == "terminal"]
    for l, ((k, n), open_) in enumerate(zip(mine["terminal"]["ends"], mine["terminal"]["undecided"], strict=True)):
        low = binomtest(k, n + open_).proportion_ci(method="wilson").low
        high = binomtest(k + open_, n + open_).proportion_ci(method="wilson").high
        kind = "yes" if low > 0.5 else "no" if high < 0.5 else "open"
        assert l in finding["numbers"]["layers"][kind]


def readings(encoder, texts, **options):
    """The audit of some texts, as its JSON tells it, and the numbers of its findings by name."""
    told = json.loads(json.dumps(audit(encoder, texts, seed=1, **options).to_dict()))
    return told, {finding["name"]: finding["numbers"] for finding in told["findings"]}


@pytest.mark.parametrize(
    "family", ["modernbert", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bert", "mpnet"))]
)
def test_sentences_stay_true_on_other_texts_of_the_same_kind(tiny, family):
    """Texts of one kind: tokens drawn with the same frequencies. And every sentence could have been denied."""
    generator = torch.Generator().manual_seed(7)
    often = torch.rand(55, generator=generator) ** 3
    draws = [(5 + torch.multinomial(often, 24, True, generator=generator)).tolist() for _ in range(16)]
    one, other = (readings(tiny(family), draws[half::2], loop_steps=2)[1] for half in (0, 1))
    assert denied(one, other) == {} == denied(other, one)
    many = one["sinks"]["on_others"][1] + 1
    changed = {
        "rebuilt": {"attention_error": 1e-3},
        "temperature": {"reached": not one["temperature"]["reached"]},
        "forecast": {"best": "none", "alike": []},
        "closures": {"best": []},
        "sinks": {"heads": many},
        "copying": {"suppresses": one["copying"]["suppresses_on_others"][1] + 1},
        "directions": {"directions": [2 * used for used in one["directions"]["directions"]]},
        "depth": {"course": "none"},
        "terminal": {"layers": {"yes": [], "no": [0, 1, 2], "open": []}},
        "early": {"forecast": [7]},
        "matching": {"heads": 10},
        "stable_rank": {"stable_rank": [1.0]},
    }
    told = one | {"terminal": one["terminal"] | {"layers": {"yes": [0], "no": [], "open": [1, 2]}}}
    told["depth"] = told["depth"] | {"course": "rise"}
    otherwise = {name: told[name] | changed[name] for name in told}
    assert set(denied(told, otherwise)) == set(told) == set(changed)


def before_the_last(ids, n):
    """The first n tokens as a tokenizer cuts them: the special token at the end is kept."""
    return [*ids[: n - 1], ids[-1]] if n < len(ids) else ids


@pytest.mark.slow
def test_sentences_about_a_trained_model_stay_true_on_other_paragraphs(minilm):
    """all-MiniLM-L6-v2 on the two halves of our prose: what is said of one must not be denied of the other."""
    prose = (Path(__file__).parent / "prose.txt").read_text().split("\n\n")
    (told, one), (_, other) = (readings(minilm, prose[half::2]) for half in (0, 1))
    assert denied(one, other) == {} == denied(other, one)
    ids = [minilm.tokenizer(text)["input_ids"] for text in prose[0::2]]
    mine = recompute(minilm.model, ids, told, seed=1, loops=False, cut=before_the_last)
    for name, numbers in mine.items():
        close(numbers, one[name], name)
