"""`metastable audit`: open a trained encoder and say what its attention does."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from metastable.errors import InvalidInput, StorageError

DEFAULT_TEXTS = 16
DEFAULT_TOKENS = 128


def audit(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL...", help="Folder, model id, .safetensors or .onnx file; several with --series."
        ),
    ],
    text: Annotated[
        Path | None,
        typer.Option("--text", help="Text file: one text per paragraph (per line when there is no empty line)."),
    ] = None,
    series: Annotated[
        bool,
        typer.Option("--series", help="Audit all models in order (checkpoints of one architecture): what moved."),
    ] = False,
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
    tokenizer: Annotated[
        Path | None, typer.Option("--tokenizer", help="Folder of a tokenizer, if the model has none.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the controls and of random tokens.")] = 0,
    device: Annotated[
        str, typer.Option("--device", help="cpu or cuda: where the model runs and the loops are iterated.")
    ] = "cpu",
) -> None:
    """Audit a trained encoder: weights, attention on text, each layer iterated, every forecast with a control.

    Example: metastable audit ./all-MiniLM-L6-v2 --text corpus.txt --out report.html

    Along a training: metastable audit --series step-0 step-100 step-1000 --text corpus.txt --out series.html
    """
    from rich.console import Console

    from metastable.audit import audit as run
    from metastable.audit import audit_series
    from metastable.encoders import load

    if len(models) > 1 and not series:
        raise InvalidInput(f"{len(models)} models were given; add --series to compare them in order")
    for name, value in (("--max-texts", max_texts), ("--max-tokens", max_tokens)):
        if value < 1:
            raise InvalidInput(f"{name} must be >= 1, got {value}")
    if series and len(models) < 2:
        raise InvalidInput(f"a series needs at least two models, got {len(models)}")
    if out is not None:
        _writable(out)
    console = Console(stderr=True)
    texts = None if text is None else read_texts(text, max_texts)
    with console.status("opening the model") as status:

        def tell(line: str) -> None:
            status.update(line)

        def opened(model: str) -> Any:
            tell(f"opening {model}")
            encoder = load(model, tokenizer=tokenizer).to(device)
            limit = min(max_tokens, encoder.inputs.max_tokens or max_tokens)
            return dataclasses.replace(encoder, inputs=dataclasses.replace(encoder.inputs, max_tokens=limit))

        result: Any = (
            audit_series(map(opened, models), texts, names=_titles(models), seed=seed, report=tell)
            if series
            else run(opened(models[0]), texts, seed=seed, report=tell)
        )
    if out is not None:
        result.save(out)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), allow_nan=False))
        return
    for line in result.sentences() if series else _lines(result):
        typer.echo(line)
    if out is not None:
        typer.echo(f"wrote {out} and {out.with_suffix('.json')}")


def read_texts(path: Path, count: int) -> list[str]:
    """Texts of a file: paragraphs, or lines when there is no empty line; at most `count`, evenly spread."""
    try:
        content = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise StorageError(f"the text file {path} cannot be read: {error.strerror}") from error
    parts = content.replace("\r\n", "\n").split("\n\n")
    if len([p for p in parts if p.strip()]) < 2:
        parts = content.splitlines()
    texts = [" ".join(part.split()) for part in parts if part.strip()]
    if not texts:
        raise InvalidInput(f"the text file {path} holds no text")
    if len(texts) <= count:
        return texts
    return [texts[i * len(texts) // count] for i in range(count)]


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
    return [head, *found, f"assumptions of the theory that fail here: {', '.join(fails)}"]


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"
