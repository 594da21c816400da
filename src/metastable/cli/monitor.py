"""`metastable monitor`: calibrate on texts as they should be, then score, report or serve others."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from metastable.errors import InvalidInput, StorageError

monitor = typer.Typer(
    help="Calibrated early warning for the traffic of an encoder: calibrate, score, report, serve.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)

MODEL = typer.Argument(metavar="MODEL", help="Folder, model id, .safetensors or .onnx file.")
TEXTS = typer.Argument(
    metavar="TEXT...",
    help="Text files, one text per paragraph (or per line), .jsonl with text and document, folders of them.",
)
CALIBRATION = typer.Argument(metavar="CALIBRATION", help="File that `monitor calibrate` wrote.")
RATE = typer.Option(
    "--rate", help="Nominal rate of false alarms; 1%, or the least that the calibration can promise."
)


@monitor.command()
def calibrate(
    model: Annotated[str, MODEL],
    texts: Annotated[list[Path], TEXTS],
    out: Annotated[Path, typer.Option("--out", "-o", help="File of the calibration.")] = Path("calibration.npz"),
    tokens: Annotated[int | None, typer.Option("--tokens", help="Look at so many tokens of a text; all.")] = None,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Folder of a tokenizer.")] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the split of the documents.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
) -> None:
    """Learn what texts of a model look like.

    Example: metastable monitor calibrate ./all-MiniLM-L6-v2 corpus/ --out calibration.npz
    """
    from rich.console import Console

    from metastable.encoders import load
    from metastable.monitor import Monitor

    given, documents = read_documents(texts)
    with Console(stderr=True).status("opening the model") as status:
        encoder = load(model, tokenizer=tokenizer)
        made = Monitor.calibrate(
            encoder, given, documents=documents, tokens=tokens, seed=seed, report=lambda line: status.update(line)
        )
    path = made.save(out)
    calibration = made.calibration
    if as_json:
        typer.echo(
            json.dumps({"path": str(path), **made.about, **made.identity.to_dict(), "parts": calibration.parts})
        )
        return
    typer.echo(f"{made.about['name']}: {calibration.texts} texts of {calibration.documents} documents")
    typer.echo(f"channels {', '.join(made.channels)}; {calibration.shortest} to {calibration.longest} tokens")
    typer.echo(f"least rate of false alarms that can be promised: {calibration.whole.least:.3g}")
    typer.echo(f"wrote {out}")


@monitor.command()
def score(
    calibration: Annotated[Path, CALIBRATION],
    model: Annotated[str, MODEL],
    texts: Annotated[list[Path], TEXTS],
    rate: Annotated[float | None, RATE] = None,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Folder of a tokenizer.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a line of JSON per text, then the drift.")] = False,
) -> None:
    """Judge texts; exit code 1 when they drift as a whole.

    Example: metastable monitor score calibration.npz ./all-MiniLM-L6-v2 today.txt
    """
    opened, given, documents = _opened(calibration, model, tokenizer, texts)
    scores = opened.score(given, rate=rate)
    drift = opened.drift(scores, documents=documents, rate=opened.nominal(rate))
    for number, (text, one) in enumerate(zip(given, scores, strict=True)):
        if as_json:
            typer.echo(json.dumps({"number": number, **one.to_dict()}))
        elif one.alarm or not one.in_range:
            typer.echo(f"text {number}: {one.sentence()}  {' '.join(text.split())[:60]!r}")
    if as_json:
        typer.echo(json.dumps({"drift": dataclasses.asdict(drift)}))
    else:
        typer.echo(f"{drift.alarms} of {drift.judged} texts alarm; drift of all of them: p = {drift.p:.3g}")
    if drift.alarm:
        raise typer.Exit(1)


@monitor.command()
def report(
    calibration: Annotated[Path, CALIBRATION],
    model: Annotated[str, MODEL],
    texts: Annotated[list[Path], TEXTS],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page; numbers beside it.")] = Path("monitor.html"),
    rate: Annotated[float | None, RATE] = None,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Folder of a tokenizer.")] = None,
) -> None:
    """Judge texts in their order and write a page: timelines, channels, alarms with their tokens marked.

    Example: metastable monitor report calibration.npz ./all-MiniLM-L6-v2 today.txt --out today.html
    """
    from metastable.monitor import report as made_of

    opened, given, documents = _opened(calibration, model, tokenizer, texts)
    made = made_of(opened, given, documents=documents, rate=rate)
    made.save(out)
    alarms = sum(one.alarm for one in made.scores)
    typer.echo(f"{alarms} of {len(made.scores)} texts alarm, drift p = {made.drift.p:.3g}")
    typer.echo(f"wrote {out} and {out.with_suffix('.json')}")


@monitor.command()
def serve(
    calibration: Annotated[Path, CALIBRATION],
    model: Annotated[str, MODEL],
    host: Annotated[str, typer.Option("--host", help="Address; by default this machine only.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port.")] = 8642,
    rate: Annotated[float | None, RATE] = None,
    log: Annotated[Path | None, typer.Option("--log", help="Write every score as a line of JSON here.")] = None,
    tokenizer: Annotated[Path | None, typer.Option("--tokenizer", help="Folder of a tokenizer.")] = None,
) -> None:
    """Embed and judge texts over HTTP, with a live page, metrics and an OpenAPI document.

    Example: metastable monitor serve calibration.npz ./all-MiniLM-L6-v2 --log scores.jsonl
    """
    from metastable.monitor.service import Service
    from metastable.monitor.service.app import serve as run
    from metastable.monitor.service.journal import Journal

    opened = _load(calibration, model, tokenizer)
    service = Service(opened, rate=rate, journal=None if log is None else Journal(log))
    typer.echo(f"live page http://{host}:{port}/, document http://{host}:{port}/openapi.json; stop with Ctrl-C")
    run(service, host, port)


def _load(calibration: Path, model: str, tokenizer: Path | None) -> Any:
    from metastable.encoders import load
    from metastable.monitor import Monitor

    if not calibration.is_file():
        raise StorageError(f"there is no calibration {calibration.name!r}")
    return Monitor.load(calibration, load(model, tokenizer=tokenizer))


def _opened(calibration: Path, model: str, tokenizer: Path | None, texts: list[Path]) -> Any:
    given, documents = read_documents(texts)
    return _load(calibration, model, tokenizer), given, documents


def read_documents(paths: list[Path]) -> tuple[list[str], list[str] | None]:
    """Texts and their documents: paragraphs of files, lines of .jsonl; in one text file every text is one: None."""
    from metastable.audit import read_corpus

    files = [file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path])]
    files = [file for file in files if not file.is_dir()]
    if not files:
        raise InvalidInput(f"there are no files in {', '.join(map(str, paths))[:80]}")
    texts: list[str] = []
    documents: list[str] = []
    for file in files:
        whole = file.suffix != ".jsonl"
        found = [(text, str(file)) for text in read_corpus(file).items] if whole else _lines(file)
        texts += [text for text, _ in found]
        documents += [document for _, document in found]
    plain = len(files) == 1 and files[0].suffix != ".jsonl"
    return texts, None if plain else documents


def _lines(file: Path) -> list[tuple[str, str]]:
    found = []
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"{file.name} cannot be read as lines of JSON: {type(error).__name__}") from error
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            found.append((str(entry["text"]), str(entry.get("document", f"{file}:{number}"))))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InvalidInput(f"line {number + 1} of {file.name} must be an object with a text") from error
    return found
