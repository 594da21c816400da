"""What does the monitor cost? A model with and without it: 32 texts of 128 tokens, and one text at a time.

    python benchmarks/monitor.py [--pairs 120] [--tokens 32 all] [--threads 1] [--device cpu|cuda] [--quick]
    python benchmarks/monitor.py --merge FILE...    # several runs of the same machine as one, see below

A BERT of the sizes of all-MiniLM-L6 (6 layers, 12 heads, d = 384) with random weights, which cost what trained
ones cost, SDPA attention: in single precision on the CPU, in half precision on a GPU. The monitor has all its
channels and looks at 32 tokens of every text, or at all of them.

Passes take turns: plain, monitored, plain, plain again, plain, monitored ... Every monitored pass is compared with
the mean of the plain ones just before and behind it, and so is every plain pass that stands in its place: what the
design itself says where nothing is different ("control"). Where one text is read at a time, passes with the monitor
attached and nothing sampled ("idle") stand there, too; with a sampling rate r the mean overhead is
idle + r (all - idle). Given are means without the outer tenths of the pairs, and standard errors by bootstrap: of
CPU time of the process, and of wall time, which counts on a GPU and where threads wait for each other. Beside it
the CPU time inside the monitor's hooks alone, which leaves out what they do to the caches of the model. "kept" says
whether the overhead is at most what is asked for by two standard errors.

glibc gives the memory of a layer back to the system and takes it anew, page by page, as luck has it: 25 to 75
thousand page faults in a pass of a second, which then differs from the next by 5% for no other reason. So it is
told to keep its memory, with the monitor and without, as a server would; `--allocator default` leaves it alone.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from attend import RESULTS, machine
from metastable.encoders import load
from metastable.errors import NotDefined
from metastable.monitor import Attachment, Monitor

ALLOWED = {("32 tokens", 32): 0.02, ("all tokens", 32): 0.05, ("32 tokens", 1): 0.02}
"""Largest share of the model's own time that is asked for, by tokens looked at and texts of a batch; of single
texts in the mean over sampled and other passes."""
LOOKED_AT = {"32": 32, "all": None}
"""Tokens of a text that the monitor looks at."""
SAMPLED = 0.05
"""Share of the single texts that are sampled."""
OUTER = 0.1
"""Share of the pairs that is left out at each end: passes that were interrupted."""
RESAMPLED = 2000
SHORT = 4
"""So many times as many pairs of passes of one text, which are shorter."""
PLAIN, HEARD, IDLE, CONTROL = "plain", "heard", "idle", "control"
WORDS, FIRST_WORD = 30_522, 1000
KEPT = {-3: 2**30, -1: 2**31 - 1, -2: 2**28}
"""Options of glibc's mallopt: memory mapped from 1 GiB on, given back beyond 2 GiB, taken by 256 MiB."""


def keep_memory() -> None:
    """Tell glibc to keep the memory that it has; another C library is left alone."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and 0 in {mallopt(option, value) for option, value in KEPT.items()}:
        raise NotDefined("this C library does not keep its memory; run with --allocator default")


def faults() -> int:
    """Page faults of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def bert() -> tuple[Any, Any]:
    """A BERT and a tokenizer with made-up words."""
    try:
        import tokenizers
        import transformers
    except ImportError as error:
        raise NotDefined("this benchmark needs transformers; run: pip install 'metastable[encoders]'") from error
    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    model = transformers.AutoModel.from_config(
        transformers.BertConfig(**sizes, vocab_size=WORDS), attn_implementation="sdpa"
    ).eval()
    chance = np.random.default_rng(0)
    words = {"[PAD]": 0, "[UNK]": 100, "[CLS]": 101, "[SEP]": 102}
    free = (i for i in range(WORDS) if i not in words.values())
    for number in free:
        letters = "".join(chr(97 + c) for c in chance.integers(0, 26, chance.integers(2, 9)))
        word = f"{'##' if number % 3 == 0 else ''}{letters}"
        words[word if word not in words else f"{word}{number}"] = number
    named = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    law = tokenizers.Tokenizer(tokenizers.models.WordPiece(words, unk_token="[UNK]"))
    return model, transformers.PreTrainedTokenizerFast(tokenizer_object=law, **named)


def texts(count: int, seed: int, low: int = 24, high: int = 126) -> list[list[int]]:
    """Ids of a law of Zipf, which is what bigrams are counted of."""
    chance = np.random.default_rng(seed)
    lengths = chance.integers(low, high + 1, count)
    return [[101, *(int(i) for i in FIRST_WORD + chance.zipf(1.3, n) % 20_000), 102] for n in lengths]


def batch(rows: list[list[int]], device: str) -> dict[str, torch.Tensor]:
    ids = torch.zeros((len(rows), 128), dtype=torch.long)
    for b, row in enumerate(rows):
        ids[b, : len(row)] = torch.tensor(row)
    return {"input_ids": ids.to(device), "attention_mask": (ids > 0).long().to(device)}


class Switched:
    """A model whose monitor is heard, idle or taken off, from pass to pass; counts CPU time inside its hooks."""

    def __init__(self, model: Any, monitor: Monitor) -> None:
        self.model = model
        self.attached: Attachment = monitor.attach(model, sample_rate=1.0)
        self.listening = self.attached._listening
        self.inside = 0.0
        for name in ("_begin", "_enter", "_leave", "_end"):
            setattr(self.listening, name, self._timed(getattr(self.listening, name)))

    def _timed(self, act: Callable[..., None]) -> Callable[..., None]:
        def timed(*args: Any) -> None:
            began = time.thread_time()
            act(*args)
            self.inside += time.thread_time() - began

        return timed

    def seconds(self, inputs: dict[str, torch.Tensor], state: str, inner: int) -> tuple[float, ...]:
        """CPU time and wall time of a pass, CPU time inside the hooks, page faults."""
        self.listening.stop()
        if state in (HEARD, IDLE):
            self.listening.start()
            self.attached._sample_rate = 1.0 if state == HEARD else 0.0
        cuda = inputs["input_ids"].is_cuda
        self.inside = 0.0
        with torch.no_grad():
            if cuda:
                torch.cuda.synchronize()
            pages, cpu, wall = faults(), time.process_time(), time.perf_counter()
            for _ in range(inner):
                self.model(**inputs)
            if cuda:
                torch.cuda.synchronize()
        told = time.process_time() - cpu, time.perf_counter() - wall, self.inside, faults() - pages
        assert self.attached.failed == 0, self.attached.problem
        return tuple(number / inner for number in told)


def taken(
    switched: Switched, inputs: dict[str, torch.Tensor], states: list[str], pairs: int, inner: int
) -> dict[str, list[list[float]]]:
    """By state: [ratio of CPU time, of wall time, share inside the hooks, faults] of every pair; plain: seconds."""
    found: dict[str, list[list[float]]] = {state: [] for state in (PLAIN, *states)}
    for state in (*states, PLAIN, PLAIN):  # warms up
        before = switched.seconds(inputs, state, inner)
    for number in range(pairs * len(states)):
        state = states[(number + number // len(states)) % len(states)]
        here = switched.seconds(inputs, state, inner)
        behind = switched.seconds(inputs, PLAIN, inner)
        cpu, wall = ((before[k] + behind[k]) / 2 for k in (0, 1))
        found[state].append([here[0] / cpu - 1, here[1] / wall - 1, here[2] / cpu, here[3]])
        found[PLAIN].append([*behind])
        before = behind
    return found


def trimmed(values: np.ndarray) -> np.ndarray:
    """Means over the last axis without the outer tenths."""
    cut = int(OUTER * values.shape[-1])
    return np.sort(values, axis=-1)[..., cut : values.shape[-1] - cut].mean(axis=-1)


def with_error(values: np.ndarray) -> dict[str, float]:
    """Trimmed mean, its standard error by bootstrap, and the median."""
    chosen = np.random.default_rng(0).integers(0, len(values), (RESAMPLED, len(values)))
    spread = trimmed(values[chosen]).std(ddof=1)
    return {"mean": float(trimmed(values)), "error": float(spread), "median": float(np.median(values))}


def row_of(
    name: str, size: int, raw: dict[str, list[list[float]]], cuda: bool, between: float = 0.0
) -> dict[str, Any]:
    """What is stored of one configuration. between: standard error by the means of several processes."""
    told = {state: np.array(values) for state, values in raw.items()}
    clock = 1 if cuda else 0
    row: dict[str, Any] = {"looked_at": name, "batch": size, "pairs": len(told[HEARD])}
    row |= {"seconds": float(np.median(told[PLAIN][:, clock])), "clock": ("CPU", "wall")[clock]}
    for state in told:
        if state != PLAIN:
            row[state] = with_error(told[state][:, clock])
            row[f"{state}, wall"] = with_error(told[state][:, 1])
    row["inside the hooks"] = with_error(told[HEARD][:, 2])
    row["page faults"] = {state: float(np.median(told[state][:, 3])) for state in (PLAIN, HEARD)}
    share = 1.0 if size > 1 else SAMPLED
    idle = row.get(IDLE, {"mean": 0.0, "error": 0.0})
    mean = share * row[HEARD]["mean"] + (1 - share) * idle["mean"]
    error = float(np.hypot(share * row[HEARD]["error"], (1 - share) * idle["error"]))
    error = max(error, between)
    row |= {"sample_rate": share, "overhead": mean, "standard error": error}
    allowed = ALLOWED.get((name, size))
    if allowed is not None:
        sure = 2 * error
        kept = "yes" if mean + sure <= allowed else "no" if mean - sure > allowed else "undecided"
        row |= {"allowed": allowed, "kept": kept}
    return row | {"raw": raw}


def show(rows: list[dict[str, Any]], about: str) -> None:
    table = Table(title=f"overhead of the monitor on {about}, share of the model's own time ± standard error")
    for column in (
        "looked at", "batch", "pairs", "pass ms", "every pass", "control", "idle", "in hooks", "sampled", "mean",
        "allowed", "kept",
    ):  # fmt: skip
        table.add_column(column, justify="right")

    def said(value: dict[str, float] | None) -> str:
        return "" if value is None else f"{value['mean']:.2%} ± {value['error']:.2%}"

    for row in rows:
        table.add_row(
            row["looked_at"], f"{row['batch']} x 128", str(row["pairs"]), f"{1e3 * row['seconds']:.1f}",
            said(row[HEARD]), said(row[CONTROL]), said(row.get(IDLE)), said(row["inside the hooks"]),
            f"{row['sample_rate']:.0%}", f"{row['overhead']:.2%} ± {row['standard error']:.2%}",
            f"{row['allowed']:.0%}" if "allowed" in row else "", row.get("kept", ""),
        )  # fmt: skip
    Console(width=160).print(table)


def measured(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    torch.set_num_threads(arguments.threads)
    if arguments.allocator == "keep":
        keep_memory()
    cuda = arguments.device == "cuda"
    if cuda and not torch.cuda.is_available():
        raise NotDefined("no GPU was found; run without --device cuda")
    model, tokenizer = bert()
    encoder = load(model, name="random BERT", tokenizer=tokenizer)
    model = model.to("cuda").half() if cuda else model
    rows = []
    for name in (f"{which} tokens" for which in arguments.tokens):
        monitor = Monitor.calibrate(encoder, texts(100, 0), tokens=LOOKED_AT[name.split()[0]], model=model)
        switched = Switched(model, monitor)
        for size in arguments.batch:
            made = batch(texts(size, 1, 126, 126), arguments.device)
            states = [HEARD, CONTROL] if size > 1 and not cuda else [HEARD, CONTROL, IDLE]
            inner = 10 if cuda else 1
            pairs = 4 if arguments.quick else arguments.pairs * (1 if size > 1 or cuda else SHORT)
            raw = taken(switched, made, states, pairs, inner)
            rows.append(row_of(name, size, raw, cuda))
            show(rows[-1:], arguments.device)
        switched.attached.detach()
    return rows


def merged(files: list[Path]) -> dict[str, Any]:
    """Runs of one machine, side by side, as one: the pairs of the same configuration together.

    What memory a process happens to have differs from process to process: where the means of processes say more
    than the pairs do, the standard error is theirs.
    """
    held = [json.loads(file.read_text()) for file in files]
    raw: dict[tuple[str, int], list[dict[str, list[list[float]]]]] = {}
    for row in (row for one in held for row in one["rows"]):
        raw.setdefault((row["looked_at"], row["batch"]), []).append(row["raw"])
    cuda = held[0]["machine"]["gpu"] is not None
    rows = []
    for (name, size), runs in raw.items():
        joined = {state: [pair for run in runs for pair in run[state]] for state in runs[0]}
        each = [row_of(name, size, run, cuda)["overhead"] for run in runs]
        between = float(np.std(each, ddof=1) / len(each) ** 0.5) if len(each) > 1 else 0.0
        rows.append(row_of(name, size, joined, cuda, between) | {"by process": each})
    about = {key: held[0][key] for key in ("machine", "allocator")}
    return about | {"rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four pairs")
    parser.add_argument("--pairs", type=int, default=120, help="monitored passes, and as many controls")
    parser.add_argument("--tokens", nargs="+", choices=LOOKED_AT, default=list(LOOKED_AT), help="tokens looked at")
    parser.add_argument("--batch", nargs="+", type=int, choices=(1, 32), default=[32, 1], help="texts of a batch")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--allocator", choices=("keep", "default"), default="keep", help="what glibc does")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    parser.add_argument("--name", help="name of a JSON file that holds every pair, to be merged")
    parser.add_argument("--merge", type=Path, nargs="+", help="files with pairs, to be one")
    arguments = parser.parse_args()
    if arguments.merge:
        result = merged(arguments.merge)
    else:
        rows = measured(arguments)
        gpu = torch.cuda.get_device_name() if arguments.device == "cuda" else None
        about = {"gpu": gpu, "threads": arguments.threads}
        result = {"machine": machine() | about, "allocator": arguments.allocator, "rows": rows}
    show(result["rows"], result["machine"]["gpu"] or result["machine"]["cpu"])
    if not arguments.name:
        for row in result["rows"]:
            del row["raw"]
    arguments.out.mkdir(parents=True, exist_ok=True)
    gpu = result["machine"]["gpu"]
    file = arguments.name or ("monitor.json" if gpu is None else f"monitor-{'-'.join(gpu.lower().split())}.json")
    (arguments.out / file).write_text(json.dumps(result, indent=None if arguments.name else 1) + "\n")


if __name__ == "__main__":
    main()
