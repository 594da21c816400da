"""What the audit of an encoder of BERT-base's size costs: seconds and gigabytes, with and without advice.

    taskset -c 0,1 python benchmarks/large_encoder.py [--quick] [--device cuda] [--out FOLDER]

The model is torch's own encoder, 12 layers of 12 heads in d = 768 (85 million parameters; BERT-base has 24 million
more, which are a table), its weights random but shaped as trained ones are: keys that look like queries, ranks that
decay, gains. It reads 16 sequences of 128 tokens, which is what the command line reads of a file. With `--device
cuda` the same audit runs there as well, and the largest difference of a number of its findings is told.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

import metastable as ms

SIZES = {"quick": (2, 4, 96, 4, 32), "full": (12, 12, 768, 16, 128)}
"""Layers, heads, d, texts, tokens of a text."""


def encoder(layers, heads, d):
    """torch's encoder with keys near the queries, decaying ranks, and gains that differ."""
    torch.manual_seed(0)
    block = torch.nn.TransformerEncoderLayer(d, heads, 4 * d, batch_first=True, activation="gelu", dropout=0.0)
    model = torch.nn.TransformerEncoder(block, layers, enable_nested_tensor=False).eval()
    rank = d // heads
    decay = torch.exp(-torch.arange(rank) / (rank / 3)).repeat(heads)[:, None]
    with torch.no_grad():
        for layer in model.layers:
            attention = layer.self_attn
            query = torch.randn(d, d) / math.sqrt(d)
            key = 0.5 * query + 0.8 * torch.randn(d, d) / math.sqrt(d)
            attention.in_proj_weight[: 2 * d] = 1.2 * torch.cat((query * decay, key * decay))
            attention.in_proj_weight[2 * d :] = 0.8 * torch.randn(d, d) / math.sqrt(d)
            attention.in_proj_bias[: 2 * d] = 0.2 * torch.randn(2 * d)
            for norm in (layer.norm1, layer.norm2):
                norm.weight.copy_(torch.exp(0.2 * torch.randn(d)))
                norm.bias.normal_(0, 0.1)
    return ms.encoders.load(model, name="85M")


def texts(count, tokens, d):
    """Sequences with a first token that all share, and tokens that are alike within a sequence."""
    generator = torch.Generator().manual_seed(1)
    first = torch.randn(1, d, generator=generator)
    found = []
    for _ in range(count):
        topic = torch.randn(1, d, generator=generator)
        found.append(torch.cat((first, 0.4 * topic + torch.randn(tokens - 1, d, generator=generator))))
    return found


def timed(opened, items, device):
    """One audit with advice, its cost, and what it was spent on."""
    spent, state = {}, [time.process_time(), "start"]

    def tell(line):
        now = time.process_time()
        name = "".join(c for c in state[1] if not c.isdigit()).strip()
        spent[name] = spent.get(name, 0.0) + now - state[0]
        state[:] = [now, line]

    wall = time.perf_counter()
    report = ms.audit(opened, items, advice=True, device=device, report=tell)
    tell("page")
    report.to_html()
    tell("end")
    advice = sum(seconds for name, seconds in spent.items() if name.startswith("advice"))
    row = {
        "device": device,
        "cpu_seconds": sum(spent.values()) - advice,
        "cpu_seconds_of_advice": advice,
        "wall_seconds": time.perf_counter() - wall,
        "peak_gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "cpu_seconds_of": {name: round(seconds, 2) for name, seconds in spent.items()},
        "passes": [sum(run.passes for run in loop.runs) for loop in report.loops],
    }
    return report, row


def apart(one, other):
    """Largest difference of two findings' numbers, relative to 1 where they are larger."""
    if isinstance(one, dict):
        return max((apart(one[k], other[k]) for k in one), default=0.0)
    if isinstance(one, (list, tuple)):
        return max((apart(a, b) for a, b in zip(one, other, strict=True)), default=0.0)
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) / max(1.0, abs(one))
    return 0.0 if one == other else math.inf


def main():
    """Run and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="2 layers in d = 96 and 4 short texts")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda: there as well")
    parser.add_argument("--out", default="metastable-out/bench", help="folder for the JSON")
    options = parser.parse_args()
    size = "quick" if options.quick else "full"
    layers, heads, d, count, tokens = SIZES[size]
    items = texts(count, tokens, d)
    result = {"layers": layers, "heads": heads, "d": d, "texts": count, "tokens": tokens, "size": size}
    result |= {"cores": len(os.sched_getaffinity(0)), "threads": torch.get_num_threads(), "rows": []}
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    name = "large_encoder"
    if options.device != "cpu":
        result["card"] = torch.cuda.get_device_name()
        name += "-" + result["card"].lower().replace(" ", "-")
    kept = {}
    for device in dict.fromkeys(("cpu", options.device)):
        kept[device], row = timed(encoder(layers, heads, d), items, device)
        result["rows"].append(row)
        if device != "cpu":
            pairs = zip(kept["cpu"].findings, kept[device].findings, strict=True)
            result["apart"] = {a.name: apart(a.numbers, b.numbers) for a, b in pairs}
        (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        Console().print(row["cpu_seconds_of"])
    columns = ("cpu_seconds", "cpu_seconds_of_advice", "wall_seconds", "peak_gigabytes")
    table = Table("device", "CPU s", "of advice, CPU s", "wall s", "peak GB", title=f"{layers} layers, d = {d}")
    for row in result["rows"]:
        table.add_row(row["device"], *(f"{row[name]:.1f}" for name in columns))
    Console().print(table)
    for name, value in result.get("apart", {}).items():
        Console().print(f"{name}: {options.device} differs by {value:.1e}")


if __name__ == "__main__":
    main()
