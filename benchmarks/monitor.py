"""What does the monitor cost? A model with and without it: 32 texts of 128 tokens, and one text at a time.

    python benchmarks/monitor.py [--quick] [--rounds N] [--device cpu|cuda]

A BERT of the sizes of all-MiniLM-L6 (6 layers, 12 heads, d = 384) with random weights, which cost what trained
ones cost, SDPA attention: in single precision on one thread of the CPU, in half precision on a GPU. The monitor has
all its channels and looks at 32 tokens of every text, or at all of them. Passes with it attached, with it attached
and no pass sampled ("idle"), and without it take turns, in an order that rotates; CPU time of the process (on a GPU
wall time), the median of a round's ratio and its standard error. With a sampling rate r the mean overhead is
idle + r (all - idle). Allowed is what is asked for.
"""

from __future__ import annotations

import argparse
import json
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
from metastable.monitor import Monitor

ALLOWED = {("32 tokens", 32): 0.02, ("all tokens", 32): 0.05, ("32 tokens", 1): 0.02}
"""Largest share of the model's own time that is asked for, by tokens looked at and texts of a batch; of single
texts in the mean over sampled and other passes."""
LOOKED_AT = {"32": 32, "all": None}
"""Tokens of a text that the monitor looks at."""
SAMPLED = 0.05
"""Share of the single texts that are sampled."""
NEVER = 1e-12
"""A sampling rate at which no pass of a benchmark is sampled."""


def bert() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise NotDefined("this benchmark needs transformers; run: pip install 'metastable[encoders]'") from error
    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    return transformers.AutoModel.from_config(
        transformers.BertConfig(**sizes, vocab_size=30_522), attn_implementation="sdpa"
    ).eval()


def texts(count: int, seed: int, low: int = 24, high: int = 126) -> list[list[int]]:
    """Ids of a law of Zipf, which is what bigrams are counted of."""
    chance = np.random.default_rng(seed)
    lengths = chance.integers(low, high + 1, count)
    return [[int(i) for i in 1000 + chance.zipf(1.3, n) % 20_000] for n in lengths]


def batch(rows: list[list[int]], device: str) -> dict[str, torch.Tensor]:
    ids = torch.full((len(rows), 128), 0)
    for b, row in enumerate(rows):
        ids[b, 0], ids[b, 1 : 1 + len(row)], ids[b, 1 + len(row)] = 101, torch.tensor(row), 102
    return {"input_ids": ids.to(device), "attention_mask": (ids > 0).long().to(device)}


def seconds(model: Any, inputs: dict[str, torch.Tensor], inner: int) -> float:
    """CPU time of a pass, wall time on a GPU."""
    cuda = inputs["input_ids"].is_cuda
    clock: Callable[[], float] = time.perf_counter if cuda else time.process_time
    if cuda:
        torch.cuda.synchronize()
    began = clock()
    with torch.no_grad():
        for _ in range(inner):
            model(**inputs)
    if cuda:
        torch.cuda.synchronize()
    return (clock() - began) / inner


def overhead(
    model: Any, monitor: Monitor, inputs: dict[str, torch.Tensor], rounds: int, inner: int
) -> dict[str, float]:
    """What the monitor adds, as a share of the model's own time; idle: where no pass is sampled."""
    taken: dict[str, list[float]] = {"plain": [], "heard": [], "idle": []}
    order = [("plain", None), ("heard", 1.0), ("idle", NEVER)]
    for number in range(rounds + 1):
        for name, rate in order[number % 3 :] + order[: number % 3]:
            if rate is None:
                now = seconds(model, inputs, inner)
            else:
                with monitor.attach(model, sample_rate=rate) as attached:
                    now = seconds(model, inputs, inner)
                    assert attached.failed == 0, attached.problem
            if number:  # the first round warms up
                taken[name].append(now)
    plain, heard, idle = (np.array(taken[name]) for name in ("plain", "heard", "idle"))
    return {
        "overhead": float(np.median(heard / plain) - 1),
        "standard error": error_of_median(heard / plain),
        "idle": float(np.median(idle / plain) - 1),
        "standard error of idle": error_of_median(idle / plain),
        "seconds": float(np.median(plain)),
        "rounds": rounds,
    }


def error_of_median(values: np.ndarray) -> float:
    """Standard error of the median of normal numbers, sqrt(pi/2) sigma/sqrt(n), sigma by the median deviation."""
    sigma = 1.4826 * np.median(np.abs(values - np.median(values)))
    return float((np.pi / 2 / len(values)) ** 0.5 * sigma)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--rounds", type=int, default=16, help="passes of each kind")
    parser.add_argument("--tokens", nargs="+", choices=LOOKED_AT, default=list(LOOKED_AT), help="tokens looked at")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cuda = arguments.device == "cuda"
    if cuda and not torch.cuda.is_available():
        raise NotDefined("no GPU was found; run without --device cuda")
    rounds = 4 if arguments.quick else arguments.rounds
    model = bert()
    encoder = load(model, name="random BERT")
    model = model.to("cuda").half() if cuda else model
    rows = []
    table = Table(title=f"overhead of the monitor on {arguments.device}, share of the model's own time")
    for column in (
        "tokens looked at",
        "batch",
        "model ms",
        "every pass",
        "s.e.",
        "idle",
        "sampled",
        "mean",
        "allowed",
    ):
        table.add_column(column, justify="right")
    for name in (f"{which} tokens" for which in arguments.tokens):
        monitor = Monitor.calibrate(encoder, texts(100, 0), tokens=LOOKED_AT[name.split()[0]], model=model)
        for size in (32, 1):
            made = batch(texts(size, 1, 126, 126), arguments.device)
            found = overhead(model, monitor, made, rounds, 50 if cuda else 1 if size > 1 else 10)
            share = 1.0 if size > 1 else SAMPLED
            mean = found["idle"] + share * (found["overhead"] - found["idle"])
            allowed = ALLOWED.get((name, size))
            about = {"looked_at": name, "batch": size, "sample_rate": share, "mean": mean, "allowed": allowed}
            rows.append(about | found)
            table.add_row(
                name, f"{size} x 128", f"{1e3 * found['seconds']:.1f}", f"{found['overhead']:.1%}",
                f"{found['standard error']:.1%}", f"{found['idle']:.1%}", f"{share:.0%}", f"{mean:.1%}",
                "" if allowed is None else f"{allowed:.0%}",
            )  # fmt: skip
    Console(width=120).print(table)
    gpu = torch.cuda.get_device_name() if cuda else None
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = "monitor.json" if gpu is None else f"monitor-{'-'.join(gpu.lower().split())}.json"
    (arguments.out / file).write_text(
        json.dumps({"machine": machine() | {"gpu": gpu}, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
