"""`metastable audit`: open a trained encoder and say what its attention does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from metastable.errors import InvalidInput, StorageError

DEFAULT_TEXTS = 16
DEFAULT_TOKENS = 128
FAILED = 1
"""Exit code when a threshold of --fail-if is crossed."""


def audit(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...",
            help="Folder, model id, or a file (.safetensors, .onnx, .pt with --config); several with --series.",
        ),
    ],
    text: Annotated[
        Path | None,
        typer.Option("--text", help="Text file: one text per paragraph (per line when there is no empty line)."),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option("--images", help="For a vision encoder: an image or a folder of images; may be repeated."),
    ] = None,
    against: Annotated[
        str | None, typer.Option("--against", help="A second model: what differs, largest first, with error bars.")
    ] = None,
    series: Annotated[
        bool,
        typer.Option("--series", help="Audit all models in order (checkpoints of one architecture): what moved."),
    ] = False,
    advice: Annotated[
        bool,
        typer.Option("--advice", help="Try what could be done (fewer heads, rounding, ...): twice the time."),
    ] = False,
    fail_if: Annotated[
        list[str] | None,
        typer.Option("--fail-if", help="Exit with 1 if a number is so, e.g. 'sink_heads>0.5'; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the page here, and its numbers beside it as .json.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON and nothing else.")] = False,
    max_texts: Annotated[
        int, typer.Option("--max-texts", help="At most so many texts, spread over the file.")
    ] = DEFAULT_TEXTS,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", help="Cut every text after so many tokens.")
    ] = DEFAULT_TOKENS,
    encoding: Annotated[
        str | None, typer.Option("--encoding", help="Encoding of the text file, if it is not UTF-8.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="Folder of a tokenizer, if the model has none.")
    ] = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="config.json (or its folder) of a weight file without one.")
    ] = None,
    family: Annotated[
        str | None, typer.Option("--family", help="model_type, such as bert, of a config that names none.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the controls and of random tokens.")] = 0,
    device: Annotated[
        str, typer.Option("--device", help="cpu or cuda: where the model runs and the loops are iterated.")
    ] = "cpu",
) -> None:
    """Audit a trained encoder: weights, attention on text, each layer iterated, every forecast with a control.

    Example: metastable audit ./all-MiniLM-L6-v2 --text corpus.txt --out report.html

    Two checkpoints: metastable audit ./before --against ./after --text corpus.txt --fail-if "embedding_cosine<0.9"

    Along a training: metastable audit --series step-0 step-100 step-1000 --text corpus.txt --out series.html
    """
    from rich.console import Console

    from metastable.audit import Threshold, audit_series, compare
    from metastable.audit import audit as run
    from metastable.encoders import load
    from metastable.encoders.transformers_library import quiet

    _agree(models, series, against, text, images, advice)
    for name, value in (("--max-texts", max_texts), ("--max-tokens", max_tokens)):
        if value < 1:
            raise InvalidInput(f"{name} must be >= 1, got {value}")
    thresholds = [Threshold.read(written) for written in fail_if or ()]
    if thresholds and series:
        raise InvalidInput("--fail-if is for one model, or for two with --against; a series has no one number")
    if out is not None:
        _writable(out)
    items = _items(text, images, max_texts, max_tokens, encoding)
    console = Console(stderr=True)
    for remark in getattr(items, "remarks", ()):
        console.print(f"metastable: {remark}", style="yellow", highlight=False, soft_wrap=True)
    with quiet(), console.status("opening the model") as status:

        def tell(line: str) -> None:
            status.update(line)

        def opened(model: str) -> Any:
            tell(f"opening {model}")
            return load(model, tokenizer=tokenizer, config=config, family=family).to(device)

        limits: dict[str, Any] = {"max_texts": max_texts, "max_tokens": max_tokens, "report": tell}
        result: Any
        if series:
            result = audit_series(map(opened, models), items, names=_titles(models), seed=seed, **limits)
        elif against is not None:
            titles = _titles([models[0], against])
            result = compare(opened(models[0]), opened(against), items, names=titles, **limits)
        else:
            result = run(opened(models[0]), items, given=models[0], advice=advice, seed=seed, **limits)
    record = result.to_dict() if as_json or thresholds else {}
    known = result.numbers() if thresholds else {}
    crossed = [line for threshold in thresholds if (line := threshold.crossed(known, record)) is not None]
    if out is not None:
        result.save(out)
    if as_json:
        typer.echo(json.dumps(record, allow_nan=False))
    else:
        for line in result.sentences() if series or against is not None else _lines(result):
            typer.echo(line)
        if out is not None:
            typer.echo(f"wrote {out} and {out.with_suffix('.json')}")
    for line in crossed:
        typer.echo(f"metastable: fails: {line}", err=True)
    if crossed:
        raise typer.Exit(FAILED)


def _agree(
    models: list[str],
    series: bool,
    against: str | None,
    text: Path | None,
    images: list[Path] | None,
    advice: bool,
) -> None:
    """Refuse options that do not go together, before anything is opened."""
    if len(models) > 1 and not series:
        raise InvalidInput(
            f"{len(models)} models were given; add --series to follow them in order, or compare two: A --against B"
        )
    if series and len(models) < 2:
        raise InvalidInput(f"a series needs at least two models, got {len(models)}")
    if series and against is not None:
        raise InvalidInput("--series and --against do not go together: a series compares all its members")
    if text is not None and images:
        raise InvalidInput("--text and --images do not go together: an encoder reads one or the other")
    if advice and (series or against is not None):
        raise InvalidInput("--advice is for one model: leave --series and --against out")
    if advice and text is None and not images:
        raise InvalidInput("--advice is tried on texts: give some with --text")


def _items(
    text: Path | None, images: list[Path] | None, max_texts: int, max_tokens: int, encoding: str | None
) -> Any:
    """The texts or images that the models read; None without any."""
    from metastable.audit import Corpus, read_corpus
    from metastable.encoders.images import image_files

    if images:
        files = image_files(images)
        return Corpus([str(file) for file in files], len(files), file=os.fspath(images[0])).spread(max_texts)
    if text is None:
        return None
    return read_corpus(text, max_texts=max_texts, max_tokens=max_tokens, encoding=encoding)


def _writable(out: Path) -> None:
    """Refuse a place that cannot be written before minutes are spent, not after."""
    place = next((p for p in (out, *out.absolute().parents) if p.exists()), out)
    if out.is_dir():
        raise StorageError(f"the report cannot be written to {out}: it is a folder")
    if place != out and not place.is_dir():
        raise StorageError(f"the report cannot be written to {out}: {place.name} is no folder")
    if not os.access(place, os.W_OK):
        raise StorageError(f"the report cannot be written to {out}: no permission in {place}")


def _titles(models: list[str]) -> list[str]:
    names = [Path(m).name for m in models]
    return names if len(set(names)) == len(names) else list(models)


def _lines(report: Any) -> list[str]:
    model = report.model
    head = (
        f"{model['name']}: {model['family']}, {_count(model['layers'], 'layer')} of "
        f"{_count(model['heads'], 'head')}, d = {model['d']}"
    )
    if report.text is not None:
        text = report.text
        cut = f", {text.cut} cut after {text.limit} tokens" if text.cut else ""
        left = f", {text.empty} empty and left out" if text.empty else ""
        head += f"\nmeasured on {_count(text.texts, text.item)}, {text.tokens} tokens{cut}{left}"
    found = [f"{i + 1:2d}. {f.sentence} [{f.confidence}]\n    {f.evidence}" for i, f in enumerate(report.findings)]
    fails = [a.name for a in report.scorecard if not a.holds]
    tried = [f"could be done: {a.sentence}\n    {a.evidence}" for a in report.advice]
    return [head, *found, *tried, f"assumptions of the theory that fail here: {', '.join(fails)}"]


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"
