"""What does the monitor cost? A model with and without it: 32 texts of 128 tokens, and one text at a time.

    python benchmarks/monitor.py [--quick]

A BERT of the sizes of all-MiniLM-L6 (6 layers, 12 heads, d = 384) with random weights, which cost what trained
ones cost, SDPA attention, float32. The monitor has all its channels and looks at 32 tokens of every text, or at all
of them. Rounds are interleaved; CPU time of the process on one thread (on a GPU wall time), medians. Allowed is
what is asked for. With a GPU all of it is measured there, in half precision.
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

ALLOWED = {"32 tokens": 0.02, "all tokens": 0.05}
"""Largest share of the model's own time that is asked for, at 32 texts of 128 tokens."""


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


def overhead(
    model: Any,
    monitor: Monitor,
    inputs: dict[str, torch.Tensor],
    rounds: int,
    sample_rate: float = 1.0,
    inner: int = 1,
) -> dict[str, float]:
    """What the monitor adds, as a share of the model's own time, its standard error, and that time."""
    cuda = inputs["input_ids"].is_cuda
    clock: Callable[[], float] = time.perf_counter if cuda else time.process_time

    def run() -> float:
        if cuda:
            torch.cuda.synchronize()
        began = clock()
        with torch.no_grad():
            for _ in range(inner):
                model(**inputs)
        if cuda:
            torch.cuda.synchronize()
        return clock() - began

    plain, heard = [], []
    run()
    with monitor.attach(model, sample_rate=sample_rate):
        run()
    for _ in range(rounds):
        plain.append(run())
        with monitor.attach(model, sample_rate=sample_rate) as attached:
            heard.append(run())
            assert attached.failed == 0, attached.problem
    ratios = np.array(heard) / np.array(plain) - 1
    return {
        "overhead": float(np.median(heard) / np.median(plain) - 1),
        "spread": float(np.std(ratios) / rounds**0.5),
        "seconds": float(np.median(plain)) / inner,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rounds = 5 if arguments.quick else 15
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = bert()
    encoder = load(model, name="random BERT")
    model = model.to(device) if device == "cpu" else model.to(device).half()
    rows = []
    table = Table(title=f"overhead of the monitor on {device}, share of the model's own time")
    for column in ("tokens looked at", "batch", "sampled", "model ms", "overhead", "s.e.", "allowed"):
        table.add_column(column, justify="right")
    for name, tokens in (("32 tokens", 32), ("all tokens", None)):
        monitor = Monitor.calibrate(encoder, texts(100, 0), tokens=tokens, model=model)
        cases = [(32, 1.0, 1, ALLOWED[name])]
        if tokens == 32:
            cases += [(1, 1.0, 20, None), (1, 0.05, 200 if not arguments.quick else 100, 0.02)]
        for size, share, inner, allowed in cases:
            made = batch(texts(size, 1, 126, 126), device)
            found = overhead(model, monitor, made, rounds, share, inner)
            rows.append({"looked_at": name, "batch": size, "sample_rate": share, "allowed": allowed, **found})
            limit = "" if allowed is None else f"{allowed:.0%}"
            table.add_row(
                name, f"{size} x 128", f"{share:.0%}", f"{1e3 * found['seconds']:.1f}", f"{found['overhead']:.1%}",
                f"{found['spread']:.1%}", limit,
            )  # fmt: skip
    Console().print(table)
    told = machine() | {"gpu": torch.cuda.get_device_name() if device == "cuda" else None}
    arguments.out.mkdir(parents=True, exist_ok=True)
    name = "monitor.json" if device == "cpu" else "monitor_gpu.json"
    (arguments.out / name).write_text(json.dumps({"machine": told, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
