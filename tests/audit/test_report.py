"""`audit` and `AuditReport`: one page with its numbers, on everything that an encoder reads."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
import torch

from metastable.audit import audit
from metastable.encoders import load
from metastable.errors import InvalidInput, MetastableError, StorageError
from tiny_encoders import WORDS, configs, random_model

IDS = [list(range(5, 30)), list(range(40, 20, -1))]


@pytest.fixture(scope="module")
def report(tiny):
    return audit(tiny("bert"), IDS, loop_steps=25, device="cpu")


def test_report_is_one_offline_page_with_its_numbers_beside_it(report, tmp_path):
    page = report.save(tmp_path / "deep" / "report.html").read_text()
    assert not re.search(r"https?://|<script|<link|@import|url\(", page)
    numbers = json.loads((tmp_path / "deep" / "report.json").read_text())
    assert numbers == json.loads(json.dumps(report.to_dict()))
    assert numbers["schema"] == "metastable/audit/2"
    assert len(numbers["weights"]["heads"]) == 9 and len(numbers["loops"]) == 3
    assert numbers["model"]["verification"]["holds"] is True
    for heading in ("What was found", "Spectra", "Map of the heads", "What this does not tell you"):
        assert heading in page


def test_what_cannot_be_read_is_told_before_the_work(tiny, tmp_path):
    folder = tmp_path / "tiny"
    random_model(configs()["bert"]).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    said: list[str] = []
    with pytest.raises(InvalidInput, match="100% of the texts' tokens are unknown to the tokenizer"):
        audit(load(folder), ["\u6f22 \u5b57", "\u4eee \u540d"], report=said.append)
    with pytest.raises(InvalidInput, match="device 'abacus' cannot be used"):
        audit(tiny("bert"), IDS, device="abacus", report=said.append)
    with pytest.raises(InvalidInput, match="device 'meta' cannot be used: it holds no numbers"):
        audit(tiny("bert"), IDS, device="meta", report=said.append)
    assert said == []


def test_names_from_outside_are_escaped():
    model = random_model(configs()["bert"])
    page = audit(load(model, name="<script>alert(1)</script>"), loop_steps=3).to_html()
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_weights_alone(tiny):
    report = audit(tiny("bert"), loop_steps=5)
    assert report.text is None and "(24 random)" in report.provenance["parameters"]["loop_start"]
    assert "No text was given" in report.to_html()
    assert any(
        f.confidence == "weak" and "the weights alone do not decide it" in f.sentence for f in report.findings
    )


@pytest.mark.parametrize("family", ["vit", "dinov2"])
def test_images(tiny, family):
    encoder = tiny(family)
    pictures = torch.randn(2, *encoder.inputs.shape, generator=torch.Generator().manual_seed(0))
    report = audit(encoder, list(pictures), loop_steps=5)
    assert report.text is not None and report.text.texts == 2 and report.text.tokens == 34
    page = report.to_html()
    assert not report.scorecard[0].holds and "pre-norm" in page
    assert "Measured on 2 images" in page and "2 from images and 22 random" in page
    assert "of a text" not in page


def test_token_vectors_and_a_single_layer_with_one_head():
    torch.manual_seed(1)
    block = torch.nn.TransformerEncoderLayer(6, 1, 8, norm_first=True, batch_first=True)
    module = torch.nn.TransformerEncoder(block, 1, enable_nested_tensor=False)
    report = audit(module, [torch.randn(9, 6), torch.randn(1, 6)], loop_steps=5)
    assert next(a for a in report.scorecard if a.name == "One head").holds
    assert report.loops[0].ends_other is None and report.loops[0].first_rematched is None
    assert any("there is no other layer to compare with" in f.evidence for f in report.findings)
    assert "<svg" in report.to_html() and "1 layer of 1 head," in report.to_html()
    json.dumps(report.to_dict(), allow_nan=False)


def test_modernbert_report_says_what_rope_does(tiny):
    page = audit(tiny("modernbert"), IDS, loop_steps=5).to_html()
    assert "RoPE" in page and "local attention" in page


def test_same_seed_same_report(tiny, report):
    again = audit(tiny("bert"), IDS, loop_steps=25)
    one, other = again.to_dict(), report.to_dict()
    for numbers in (one, other):
        numbers["provenance"].pop("date")
    assert one == other


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("family", ["bert", "modernbert", "mpnet"])
def test_cuda_gives_the_same_numbers(tiny, family):
    here = audit(tiny(family), IDS, loop_steps=10)
    there = audit(load(random_model(configs()[family])).to("cuda"), IDS, loop_steps=10)
    for mine, other in zip(here.text.forecasts, there.text.forecasts, strict=True):
        assert other.cosine == pytest.approx(mine.cosine, abs=1e-4)
    for mine, other in zip(here.loops, there.loops, strict=True):
        assert other.curve_early[1] == pytest.approx(mine.curve_early[1], abs=1e-4)


def test_bad_arguments(tiny, tmp_path, report):
    with pytest.raises(InvalidInput, match="loop_steps must be >= 1"):
        audit(tiny("bert"), loop_steps=0)
    with pytest.raises(InvalidInput, match="leave texts out"):
        audit(tiny("bert"), [])
    with pytest.raises(InvalidInput, match="texts must be a list, got 3"):
        audit(tiny("bert"), 3)
    with pytest.raises(InvalidInput, match="seed must be >= 0"):
        audit(tiny("bert"), seed=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        report.save(tmp_path / "file" / "report.html")


@pytest.mark.parametrize(
    "order",
    [
        "import metastable as ms",
        "import metastable as ms; import metastable.audit",
        "from metastable.audit import audit; import metastable as ms",
    ],
)
def test_the_room_is_callable(order):
    """`ms.audit` is the function and the room at once, in whatever order things are imported."""
    check = "assert callable(ms.audit) and callable(ms.audit.audit)"
    subprocess.run([sys.executable, "-c", f"{order}; {check}"], check=True)


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        ((3, None), {}),
        ((None,), {}),
        (([],), {}),
        (("./nowhere",), {"seed": "0"}),
        (("./nowhere",), {"loop_steps": [1]}),
        (("./nowhere",), {"report": 3}),
    ],
)
def test_nonsense_is_one_sentence(arguments, options):
    with pytest.raises(MetastableError) as caught:
        audit(*arguments, **options)
    assert len(str(caught.value)) < 200 and "\n" not in str(caught.value)
