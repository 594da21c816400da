from __future__ import annotations

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from metastable.audit import audit, audit_series
from metastable.audit.findings import _layers
from metastable.encoders import load
from metastable.errors import InvalidInput, StorageError
from tiny_encoders import configs, random_model

IDS = [list(range(5, 30)), list(range(40, 20, -1))]


@pytest.fixture(scope="module")
def report(tiny):
    return audit(tiny("bert"), IDS, loop_steps=25)


def test_report_is_one_offline_page_with_its_numbers_beside_it(report, tmp_path):
    page = report.save(tmp_path / "deep" / "report.html").read_text()
    assert not re.search(r"https?://|<script|<link|@import|url\(", page)
    numbers = json.loads((tmp_path / "deep" / "report.json").read_text())
    assert numbers == json.loads(json.dumps(report.to_dict()))
    assert numbers["schema"] == "metastable/audit/1"
    assert len(numbers["weights"]["heads"]) == 9 and len(numbers["loops"]) == 3
    assert numbers["model"]["verification"]["holds"] is True
    for heading in ("What was found", "Spectra", "Map of the heads", "What this does not tell you"):
        assert heading in page


def test_report_claims_no_more_than_was_measured(report):
    page = report.to_html()
    assert "stacked-layer movement is not forecast" in page
    assert {f.confidence for f in report.findings} <= {"measured", "supported", "weak"}
    assert not next(a for a in report.scorecard if a.name == "Attention only").holds
    # Random weights have no matched heads: nothing may be "supported" there.
    matching = next(f for f in report.findings if "values match their own scores" in f.sentence)
    assert matching.confidence == "weak"


def test_names_from_outside_are_escaped():
    model = random_model(configs()["bert"])
    page = audit(load(model, name="<script>alert(1)</script>"), loop_steps=3).to_html()
    assert "<script>" not in page and "&lt;script&gt;" in page


def test_weights_alone(tiny):
    report = audit(tiny("bert"), loop_steps=5)
    assert report.text is None and report.provenance["parameters"]["loop_start"] == "random tokens"
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
    assert "Measured on 2 images" in page and "from the first image" in page and "of a text" not in page


def test_token_vectors_and_a_single_layer_with_one_head():
    torch.manual_seed(1)
    block = torch.nn.TransformerEncoderLayer(6, 1, 8, norm_first=True, batch_first=True)
    module = torch.nn.TransformerEncoder(block, 1, enable_nested_tensor=False)
    report = audit(module, [torch.randn(9, 6), torch.randn(1, 6)], loop_steps=5)
    assert next(a for a in report.scorecard if a.name == "One head").holds
    assert report.loops[0].terminal_wrong_layer is None and report.loops[0].early_rolled_heads is None
    assert any("there is no other layer to compare with" in f.evidence for f in report.findings)
    assert "<svg" in report.to_html() and "1 layer of 1 head," in report.to_html()
    json.dumps(report.to_dict(), allow_nan=False)


def test_modernbert_report_says_what_rope_does(tiny):
    page = audit(tiny("modernbert"), IDS, loop_steps=5).to_html()
    assert "RoPE" in page and "local attention" in page


def test_same_seed_same_report(tiny, report):
    again = audit(tiny("bert"), IDS, loop_steps=25)
    assert again.to_dict() == report.to_dict()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("family", ["bert", "modernbert", "mpnet"])
def test_cuda_gives_the_same_numbers(tiny, family):
    here = audit(tiny(family), IDS, loop_steps=10)
    there = audit(load(random_model(configs()[family])).to("cuda"), IDS, loop_steps=10)
    for mine, other in zip(here.text.forecasts, there.text.forecasts, strict=True):
        assert other.cosine == pytest.approx(mine.cosine, abs=1e-4)
    for mine, other in zip(here.loops, there.loops, strict=True):
        assert other.curve_early == pytest.approx(mine.curve_early, abs=1e-4)


def test_bad_arguments(tiny, tmp_path, report):
    with pytest.raises(InvalidInput, match="loop_steps must be >= 1"):
        audit(tiny("bert"), loop_steps=0)
    with pytest.raises(InvalidInput, match="leave texts out"):
        audit(tiny("bert"), [])
    with pytest.raises(InvalidInput, match="seed must be an integer from 0"):
        audit(tiny("bert"), seed=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        report.save(tmp_path / "file" / "report.html")


def test_series_follows_a_change(tmp_path):
    """The same model with its scores doubled: kappa doubles and nothing else of the values moves."""
    first, second = random_model(configs()["bert"]), random_model(configs()["bert"])
    with torch.no_grad():
        for block in second.encoder.layer:
            block.attention.self.query.weight.mul_(2)
    series = audit_series([load(first), load(second)], IDS, names=["before", "after"], loop_steps=5)
    table = series.table()
    before, after = table["kappa of the weights (median head)"]
    assert after == pytest.approx(2 * before, rel=1e-6)
    before, after = table["Re lambda(sum A), largest layer"]
    assert after == pytest.approx(before, rel=1e-12)
    assert any(
        "kappa of the weights (median head) rose" in line.replace("Kappa", "kappa") for line in series.sentences()
    )
    page = series.save(tmp_path / "series.html").read_text()
    assert "before → after" in page and not re.search(r"https?://|<script", page)
    assert len(json.loads((tmp_path / "series.json").read_text())["reports"]) == 2


def test_series_opens_one_model_at_a_time(tiny):
    """From an iterator the next model is opened when the one before it is done: long trainings fit in memory."""
    heard = []

    def models():
        for i in range(3):
            heard.append(f"open {i}")
            yield tiny("bert")

    series = audit_series(models(), names=list("abc"), loop_steps=2, report=lambda line: heard.append(line[0]))
    assert heard.index("open 1") > heard.index("a") and heard.index("open 2") > heard.index("b")
    page = series.to_html()
    assert page.count("dominant eigenvalues along the series") == 3 and "wrong layer" in page
    with pytest.raises(InvalidInput, match="at least two models, got 1"):
        audit_series(iter([tiny("bert")]), loop_steps=2)


def test_series_needs_one_architecture(tiny):
    with pytest.raises(InvalidInput, match="one architecture"):
        audit_series([tiny("bert"), tiny("distilbert")], loop_steps=2)
    with pytest.raises(InvalidInput, match="at least two"):
        audit_series([tiny("bert")])


def test_command_line(tmp_path):
    import typer
    from typer.testing import CliRunner

    from metastable.cli.audit import audit as command
    from metastable.cli.audit import read_texts
    from tiny_encoders import WORDS

    folder = tmp_path / "tiny-bert"
    random_model(configs()["bert"]).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    text = tmp_path / "text.txt"
    text.write_text("a b c d\ne f g\n\nh i j k l m\n\n\n\nn o p")
    assert read_texts(text, 10) == ["a b c d e f g", "h i j k l m", "n o p"]
    assert read_texts(text, 2) == ["a b c d e f g", "h i j k l m"]
    app = typer.Typer()
    app.command()(command)
    run = CliRunner().invoke(app, [str(folder), "--text", str(text), "--json", "--out", str(tmp_path / "r.html")])
    assert run.exit_code == 0, run.output
    numbers = json.loads(run.stdout)
    assert numbers["text"]["texts"] == 3 and (tmp_path / "r.html").is_file()
    run = CliRunner().invoke(app, ["--series", str(folder), str(folder), "--max-tokens", "8"])
    assert run.exit_code == 0 and "Nothing moved" in run.stdout
    run = CliRunner().invoke(app, [str(folder), str(folder)])
    assert isinstance(run.exception, InvalidInput) and "--series" in str(run.exception)
    run = CliRunner().invoke(app, [str(folder), "--device", "abacus"])
    assert isinstance(run.exception, InvalidInput) and "'abacus' cannot be used" in str(run.exception)
    for place, told in ((tmp_path, "it is a folder"), (text / "r.html", "text.txt is no folder")):
        run = CliRunner().invoke(app, [str(tmp_path / "never opened"), "--out", str(place)])
        assert isinstance(run.exception, StorageError) and told in str(run.exception)
    (tmp_path / "empty.txt").write_text("\n\n")
    run = CliRunner().invoke(app, [str(folder), "--text", str(tmp_path / "empty.txt")])
    assert "holds no text" in str(run.exception)


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
    assert "gaussian with sinks, gaussian and mean keep most" in kept.sentence


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([3], "layer 3"),
        ([0, 2, 3, 4, 5], "layers 0 and 2-5"),
        ([1, 2], "layers 1 and 2"),
        ([4, 5, 6], "layers 4-6"),
        ([0, 1, 4, 7, 8, 9], "layers 0, 1, 4 and 7-9"),
        (list(range(12)), "all 12 layers"),
    ],
)
def test_layers_in_words(numbers, words):
    assert _layers(numbers, 12) == words


MARKS = {
    "kappa": [15, 30, 30, 27, 26, 17],
    "zero_temperature": [0.15, 0.02, -0.04, -0.12, -0.04, 0.02],
    "gaussian": [0.71, 0.55, 0.61, 0.79, 0.76, 0.84],
}
CLOSURES = {"gaussian_with_sinks": 0.79, "argmax": 0.66, "mean": 0.42, "none": 0.40}
HANDBOOK = Path("/usr/share/doc/debian-handbook/html/en-US")


def text_audit(minilm, texts):
    from metastable.audit.text import audit_text

    return audit_text(replace(minilm, inputs=replace(minilm.inputs, max_tokens=128)), texts)


@pytest.mark.slow
def test_text_marks_on_the_debian_handbook(minilm):
    """Marks of all-MiniLM-L6-v2 on 24 paragraphs of the Debian handbook (the package debian-handbook).

    kappa is met to the printed integer. The cosines scatter by 0.02 to 0.06 from paragraph to paragraph, and which
    paragraphs the marks were taken on is not known, so they are met within 0.035.
    """
    if not HANDBOOK.is_dir():
        pytest.skip("debian-handbook is not installed")
    found = [p for page in sorted(HANDBOOK.glob("*.html")) for p in paragraphs(page.read_text()) if len(p) > 300]
    result = text_audit(minilm, [found[i * len(found) // 24] for i in range(24)])
    kappa = [layer.kappa for layer in result.layers]
    assert kappa == pytest.approx(MARKS["kappa"], rel=0.02)
    assert [round(k) for k in kappa] == MARKS["kappa"]
    for name in ("zero_temperature", "gaussian"):
        assert [step.cosine[name] for step in result.forecasts] == pytest.approx(MARKS[name], abs=0.035)
    assert [result.closures[n] for n in CLOSURES] == pytest.approx(list(CLOSURES.values()), abs=0.035)


def paragraphs(page: str) -> list[str]:
    body = re.sub(r"(?s)<(script|style|pre|head).*?</\1>", " ", page)
    found = re.findall(r'(?s)<div class="para">(.*?)</div>', body)
    return [" ".join(html.unescape(re.sub(r"<[^>]+>", " ", p)).split()) for p in found]


@pytest.mark.slow
def test_text_marks_on_our_own_prose(minilm):
    """The same marks as a pattern, on text that comes with the tests: the Gaussian tilt beats its control."""
    prose = (Path(__file__).parent / "prose.txt").read_text().split("\n\n")
    result = text_audit(minilm, prose)
    assert [layer.kappa for layer in result.layers] == pytest.approx(MARKS["kappa"], rel=0.05)
    for name in ("zero_temperature", "gaussian"):
        assert [step.cosine[name] for step in result.forecasts] == pytest.approx(MARKS[name], abs=0.1)
    for step in result.forecasts:
        assert step.cosine["gaussian"] - step.control["gaussian"] > 0.1
        assert step.cosine["gaussian"] > max(step.cosine["zero_temperature"], 0.5)
    found = result.closures
    assert found["gaussian_with_sinks"] > found["argmax"] > max(found["mean"], found["none"])
