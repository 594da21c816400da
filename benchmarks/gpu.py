"""How fast is attention on this GPU, against torch's own kernels on the same card in the same run?

    python benchmarks/gpu.py [--quick] [--out FOLDER]

Peers: FlashAttention in bfloat16 and memory-efficient attention in float32, both through
`torch.nn.functional.scaled_dot_product_attention` with one head. Times are medians of device events, methods
interleaved; errors are of the mean, on sampled rows, against float64. Limits of the card (exponentials,
multiply-adds and bytes per second, and launches per second of a kernel that does nothing) are measured in the same
run, and for batches of small systems the fraction of the nearest limit is given.
"""

# ruff: noqa: SIM108
from __future__ import annotations

import argparse
import json
import platform
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from metastable.attention import KERNELS, Operands, attend_batch
from metastable.attention.gpu.instructions import exp2_special
from metastable.attention.gpu.jit import jit, tl
from metastable.attention.gpu.kernels import gpu_available
from metastable.errors import NotDefined


def unit(n: int, d: int, generator: torch.Generator) -> Tensor:
    x = torch.randn(n, d, device="cuda", generator=generator)
    return x / x.norm(dim=1, keepdim=True)


def seconds(runs: dict[str, Callable[[], Any]], repeats: int, in_a_row: int = 1) -> dict[str, float]:
    """Median time of each run, interleaved, after one run of each that compiles and warms up.

    Short runs are timed `in_a_row`, as a simulation calls them: one alone waits for the host.
    """
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(repeats):
        for name, run in runs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            torch.cuda.synchronize()
            start.record()
            for _ in range(in_a_row):
                run()
            end.record()
            torch.cuda.synchronize()
            times[name].append(start.elapsed_time(end) * 1e-3 / in_a_row)
    return {name: statistics.median(taken) for name, taken in times.items()}


def sdpa(x: Tensor, beta: float, backend: SDPBackend, dtype: torch.dtype) -> Callable[[], Tensor]:
    width = 8 * -(-x.shape[1] // 8)
    y = functional.pad(x, (0, width - x.shape[1])).to(dtype)[None, None].contiguous()

    def run() -> Tensor:
        with sdpa_kernel(backend):
            return functional.scaled_dot_product_attention(y, y, y, scale=beta)[0, 0, :, : x.shape[1]]

    return run


def error(mean: Tensor, x: Tensor, mass: Tensor, beta: float) -> float:
    """Largest error of the mean on sampled rows, relative to the unit tokens."""
    rows = torch.arange(0, len(x), max(1, len(x) // 64), device="cuda")
    y = x.double()
    exact = KERNELS["dense"](Operands(y[rows], y, y, mass.double(), beta)).mean
    return float((mean[rows].double() - exact).norm(dim=1).max())


def compare(
    n: int, d: int, beta: float, repeats: int, kernels: tuple[str, ...], peers: bool = True
) -> dict[str, Any]:
    """One row of the table: pairs per second and error of our kernels and of the peers."""
    x = unit(n, d, torch.Generator("cuda").manual_seed(d))
    mass = torch.full((n,), 1.0 / n, device="cuda")
    runs: dict[str, Callable[[], Any]] = {}
    for name in kernels:
        y, m = (x.double(), mass.double()) if name == "gpu_float64" else (x, mass)
        runs[name] = lambda name=name, y=y, m=m: KERNELS[name](Operands(y, y, y, m, beta)).mean
    if peers:
        if d <= 256:
            runs["FlashAttention bf16"] = sdpa(x, beta, SDPBackend.FLASH_ATTENTION, torch.bfloat16)
        runs["memory-efficient float32"] = sdpa(x, beta, SDPBackend.EFFICIENT_ATTENTION, torch.float32)
    times = seconds(runs, repeats)
    row: dict[str, Any] = {"n": n, "d": d, "beta": beta, "methods": {}}
    for name, taken in times.items():
        off = error(runs[name](), x, mass, beta)
        row["methods"][name] = {"seconds": taken, "pairs_per_second": n * n / taken, "error": off}
    print(f"n = {n}, d = {d}, beta = {beta:g}")
    for name, got in row["methods"].items():
        ratios = "".join(
            f"   {times[peer] / got['seconds']:6.2f} x {peer}"
            for peer in ("FlashAttention bf16", "memory-efficient float32")
            if peer in times and peer != name
        )
        print(f"  {name:26s} {got['pairs_per_second']:9.3e} pairs/s   error {got['error']:.1e}{ratios}", flush=True)
    return row


@jit
def limit_kernel(out_ptr: tl.tensor, a: tl.tensor, b: tl.tensor, n: tl.tensor, EXP: tl.constexpr) -> None:
    """16 n exponentials, or multiply-adds, per element, in registers."""
    x = tl.arange(0, 1024).to(tl.float32) * 1e-6
    for _ in range(n):
        for _ in tl.static_range(16):
            if EXP:
                x = exp2_special(x)
            else:
                x = x * a + b
    tl.store(out_ptr + tl.program_id(0) * 1024 + tl.arange(0, 1024), x)


IN_GRAPH = 20
"""Calls in one graph, as in a simulation whose steps are captured: the host does not wait between them."""


def graph_of(run: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """`IN_GRAPH` runs as a graph, after one eager run that compiles."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(IN_GRAPH):
            run()
    return graph


def limits(repeats: int) -> dict[str, float]:
    """Exponentials, multiply-adds, bytes and launches inside a graph, per second, that this card reaches."""
    programs = 64 * torch.cuda.get_device_properties(0).multi_processor_count
    out = torch.empty(programs * 1024, device="cuda")
    runs: dict[str, Callable[[], Any]] = {
        name: lambda exp=exp: limit_kernel[(programs,)](out, 1.0000001, 1e-3, 200, EXP=exp, num_warps=4)
        for name, exp in (("exponentials", True), ("multiply_adds", False))
    }
    source = torch.rand(2**28, device="cuda")
    target = torch.empty_like(source)
    runs["bytes"] = lambda: target.copy_(source)
    taken = seconds(runs, repeats)
    rates = {name: programs * 1024 * 16 * 200 / taken[name] for name in ("exponentials", "multiply_adds")}
    rates["bytes"] = 2 * source.numel() * 4 / taken["bytes"]
    nothing = graph_of(lambda: out[:1].zero_())
    return rates | {"launches": IN_GRAPH / seconds({"graph": nothing.replay}, repeats, in_a_row=10)["graph"]}


def batch(systems: int, n: int, d: int, limit: dict[str, float], repeats: int) -> dict[str, Any]:
    """Many systems of n tokens: eager, replayed from a graph, and torch's batched attention, beside the limits."""
    x = unit(systems * n, d, torch.Generator("cuda").manual_seed(0)).reshape(systems, n, d)
    graph = graph_of(lambda: attend_batch(x, x, beta=4.0))
    padded = functional.pad(x, (0, 8 - d))[:, None].contiguous()

    def peer() -> Tensor:
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            return functional.scaled_dot_product_attention(padded, padded, padded, scale=4.0)

    runs: dict[str, Callable[[], Any]] = {"eager": lambda: attend_batch(x, x, beta=4.0), "graph": graph.replay}
    if systems < 65536:
        runs["memory-efficient float32"] = peer
    taken = seconds(runs, repeats, in_a_row=20)
    taken["graph"] /= IN_GRAPH
    pairs = systems * n * n
    least = {
        "exponentials": pairs / limit["exponentials"],
        "bytes": systems * n * (2 * d + 1) * 4 / limit["bytes"],  # tokens in, means and log-partitions out
        "launches": 1 / limit["launches"],
    }
    nearest = max(least, key=lambda name: least[name])
    rates = {name: pairs / t for name, t in taken.items()}
    print(f"{systems} systems of {n} tokens, d = {d}; least by {nearest}: {least[nearest] * 1e6:.1f} us")
    for name, t in taken.items():
        reached = least[nearest] / t
        print(f"  {name:26s} {t * 1e6:9.1f} us   {rates[name]:9.3e} pairs/s   {reached:4.0%}", flush=True)
    return {
        "systems": systems,
        "n": n,
        "d": d,
        "seconds": taken,
        "pairs_per_second": rates,
        "least_seconds": least,
        "fraction_of_limit": least[nearest] / taken["graph"],
    }


def circle(n: int, beta: float, repeats: int) -> dict[str, Any]:
    """One step's attention of n tokens on the circle by cells, in float64, against a direct sum on sampled rows."""
    x = unit(n, 2, torch.Generator("cuda").manual_seed(2)).double()
    x /= x.norm(dim=1, keepdim=True)
    mass = torch.full((n,), 1.0 / n, dtype=torch.float64, device="cuda")
    taken = seconds({"circle_gpu": lambda: KERNELS["circle_gpu"](Operands(x, x, x, mass, beta))}, repeats)[
        "circle_gpu"
    ]
    rows = x[:: n // 16][:16].contiguous()
    exact = KERNELS["gpu_float64"](Operands(rows, x, x, mass, beta)).mean
    off = float((KERNELS["circle_gpu"](Operands(rows, x, x, mass, beta)).mean - exact).norm(dim=1).max())
    memory = torch.cuda.max_memory_allocated()
    print(
        f"circle, n = {n:.0e}, beta = {beta:g}: {taken:.3f} s, error {off:.1e}, {memory / 2**30:.1f} GiB",
        flush=True,
    )
    return {"n": n, "beta": beta, "seconds": taken, "error": off, "peak_bytes": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer sizes and repeats")
    parser.add_argument(
        "--circle", action=argparse.BooleanOptionalAction, default=True, help="the circle at n = 1e8"
    )
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the JSON")
    options = parser.parse_args()
    if not gpu_available():
        raise NotDefined("the GPU benchmark needs a CUDA device and Triton, and found none")
    card = torch.cuda.get_device_name()
    repeats = 3 if options.quick else 5
    small, large, huge = (131072, 16384, 10_000_000) if options.quick else (262144, 65536, 100_000_000)
    result: dict[str, Any] = {
        "card": card,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "limits_per_second": limits(repeats),
        "rows": [],
        "batches": [],
        "circle": [],
    }
    print(card, {name: f"{rate:.3e}" for name, rate in result["limits_per_second"].items()})
    ours = ("triton", "flash_bf16")
    for d in (2, 3, 4, 8):
        result["rows"].append(compare(small, d, 1.0, repeats, ours))
    for d, beta in ((2, 256.0), (3, 256.0), (2, 1e4), (3, 1e4), (3, 1e6)):
        result["rows"].append(compare(small, d, beta, repeats, ("triton",), peers=False))
    for d in (16, 64, 128, 256, 512, 768):
        result["rows"].append(compare(large if d <= 128 else large // 2, d, 8.0, repeats, ("triton",)))
    for d in (2, 3, 64, 768):
        result["rows"].append(compare(large if d < 64 else large // 2, d, 8.0, 3, ("gpu_float64",), peers=False))
    for systems, n, d in ((2048, 32, 2), (262144, 32, 2), (262144, 32, 3), (32768, 128, 2)):
        result["batches"].append(batch(systems, n, d, result["limits_per_second"], repeats))
    for beta in (1.0, 64.0, 256.0) if options.circle else ():
        result["circle"].append(circle(huge, beta, 2))
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out / f"gpu-{card.lower().replace(' ', '-')}.json"
    out.write_text(json.dumps(result, indent=1) + "\n")
    print(f"wrote {out.name}")


if __name__ == "__main__":
    main()
