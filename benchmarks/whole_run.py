"""Whole runs at equal achieved error: CPU time beside SciPy, torchdiffeq, diffrax and an Euler loop.

    python benchmarks/whole_run.py            # n = 200 and 2000, t = 2: minutes
    python benchmarks/whole_run.py --full     # also n = 20,000 for d <= 3, and t = 20, far into the terminal phase
    python benchmarks/whole_run.py --table    # what has been measured so far

What stands in the file of results is not measured again, so that a run can be made in pieces: --d, --n, --beta and
--t choose cells, --fresh forgets them, --merge takes over those of other files.
Every contestant runs at tolerances a decade apart until its largest error of a token at the end, against a run at
1e-13 with all digits, is below 1e-8; evaluations and CPU time at that error are interpolated between the last two
runs. Peers get the faster of a dense numpy and a dense torch right-hand side, diffrax a compiled one. Where a peer
would take longer than the limit, its evaluations are those of fewer tokens, times as many as metastable needs more
than there, and its time is so many evaluations (marked ~), by a run at 1e-2 for diffrax, whose right-hand side is
its own; the steps of Euler, which is of order one, always follow from a run of 400. LSODA runs where its Jacobian
is small; --peers names those that run. Where tokens have come to rest no tolerance may be too coarse for the
target, and the fastest run below it counts; who never meets it is shown at the least error. CPU time of the
process, on one thread; numpy's BLAS, whose idle threads spin and count, is told so by OPENBLAS_NUM_THREADS=1 alone,
before it is loaded: every row says it.
From n = 20,000 on a dense matrix of scores is some GB: peers take blocks of rows of the size that is fastest for
them, --threads of them at a time, each on one thread, so that their CPU time is that of their work alone and only
the wait is shorter; the reference, at 1e-11, is all pairs with all digits on as many threads. diffrax has no such
blocks.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from scipy.integrate import solve_ivp

import metastable as ms
from attend import machine

TARGET = 1e-8
LSODA_NUMBERS = 700
"""Most coordinates for LSODA, whose Jacobian by differences takes as many evaluations."""
PEERS = ("SciPy DOP853", "SciPy LSODA", "torchdiffeq dopri5", "torchdiffeq dopri8", "diffrax Dopri8", "Euler")
WHOLE = 2000
"""Tokens up to which the right-hand side of a peer holds all scores at once."""
BLOCKS = (20, 50, 200, 1000)
"""Rows of scores in one block of a peer, beyond."""
REPEATED = 0.3
"""CPU seconds for which a short run is repeated; the fastest counts."""
COMPILED = 30.0
"""CPU seconds below which a first run is repeated all the same: it may have compiled what it needs."""
Field = Callable[..., np.ndarray]
Run = Callable[[float], tuple[np.ndarray, int]]
console = Console(width=150)


def weights(d: int) -> ms.AttentionWeights:
    V = torch.diag(torch.linspace(2.0, 1.0, d, dtype=torch.float64))
    return ms.AttentionWeights(V=V, B=torch.eye(d).double() + 1.2 / max(d, 4) * torch.ones(d, d).double().triu(1))


def by_numpy(w: ms.AttentionWeights, beta: float) -> Field:
    V, B = w.V.numpy(), w.B.numpy()

    def field(x: np.ndarray, rows: slice = slice(None)) -> np.ndarray:
        x = x / np.linalg.norm(x, axis=1, keepdims=True)
        mine = x[rows]
        scores = (beta * (mine @ B)) @ x.T
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        moved = ((scores @ x) / scores.sum(axis=1, keepdims=True)) @ V.T
        return moved - (moved * mine).sum(axis=1, keepdims=True) * mine

    return field


def by_torch(w: ms.AttentionWeights, beta: float) -> Field:
    def field(array: np.ndarray, rows: slice = slice(None)) -> np.ndarray:
        x = torch.nn.functional.normalize(torch.from_numpy(array), dim=1)
        mine = x[rows]
        scores = (beta * (mine @ w.B)) @ x.T
        scores -= scores.amax(dim=1, keepdim=True)
        scores.exp_()
        moved = ((scores @ x) / scores.sum(dim=1, keepdim=True)) @ w.V.T
        return (moved - (moved * mine).sum(dim=1, keepdim=True) * mine).numpy()

    return field


def cpu(call: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.process_time()
    value = call()
    return time.process_time() - begin, value


def least_cpu(call: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds of a call, the least of several where it is short."""
    spent, value = cpu(call)
    total, least = 0.0 if spent < COMPILED else spent, spent
    while total < REPEATED:
        spent, value = cpu(call)
        total, least = total + max(spent, 1e-3), min(least, spent)
    return least, value


def fastest(w: ms.AttentionWeights, beta: float, x: np.ndarray, threads: int) -> tuple[str, Field, float]:
    """The fastest of the dense right-hand sides and sizes of blocks, and its CPU seconds."""
    found = []
    for name, field in (("numpy", by_numpy(w, beta)), ("torch", by_torch(w, beta))):
        for rows in BLOCKS if len(x) > WHOLE else (len(x),):
            some = slice(0, rows)
            spent = min(cpu(lambda f=field, some=some: f(x, some))[0] for _ in range(3))
            found.append((spent * len(x) / rows, rows, name, field))
    seconds, rows, name, field = min(found, key=lambda entry: entry[0])
    if rows == len(x):
        return name, field, seconds
    pool = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))

    def in_blocks(y: np.ndarray) -> np.ndarray:
        parts = [slice(start, start + rows) for start in range(0, len(y), rows)]
        return np.concatenate(list(pool.map(lambda part: field(y, part), parts)))

    seconds, _ = cpu(lambda: in_blocks(x))
    return f"{name}, {rows} rows", in_blocks, seconds


def scipy_run(field: Field, x: np.ndarray, t: float, method: str) -> Run:
    def run(rtol: float) -> tuple[np.ndarray, int]:
        def flat(_: float, y: np.ndarray) -> np.ndarray:
            return field(y.reshape(x.shape)).ravel()

        made = solve_ivp(flat, (0.0, t), x.ravel(), method=method, rtol=rtol, atol=rtol / 100)
        return made.y[:, -1].reshape(x.shape), int(made.nfev)

    return run


def torchdiffeq_run(field: Field, x: np.ndarray, t: float, method: str) -> Run:
    from torchdiffeq import odeint

    def run(rtol: float) -> tuple[np.ndarray, int]:
        calls = 0

        def tensor(_: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            nonlocal calls
            calls += 1
            return torch.from_numpy(field(y.numpy()))

        times = torch.tensor([0.0, t], dtype=torch.float64)
        return odeint(tensor, torch.from_numpy(x), times, rtol=rtol, atol=rtol / 100, method=method)[
            -1
        ].numpy(), calls

    return run


def diffrax_run(w: ms.AttentionWeights, beta: float, x: np.ndarray, t: float) -> Run:
    import diffrax
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    V, B, start = jnp.asarray(w.V.numpy()), jnp.asarray(w.B.numpy()), jnp.asarray(x)

    def field(_t: Any, y: Any, _arguments: Any) -> Any:
        y = y / jnp.linalg.norm(y, axis=1, keepdims=True)
        moved = jax.nn.softmax((beta * (y @ B)) @ y.T, axis=1) @ y @ V.T
        return moved - (moved * y).sum(axis=1, keepdims=True) * y

    @jax.jit
    def compiled(rtol: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Dopri8(), 0.0, t, None, start, max_steps=100_000,
            stepsize_controller=diffrax.PIDController(rtol=rtol, atol=rtol / 100),
        )  # fmt: skip

    compiled(1e-2)

    def run(rtol: float) -> tuple[np.ndarray, int]:
        made = compiled(rtol)
        # Dopri8 of diffrax has thirteen stages, of which the first is the last of the step before.
        return np.asarray(made.ys[-1]), 1 + 13 * int(made.stats["num_steps"])

    return run


def our_run(flow: ms.SelfAttention, rho: ms.Measure, t: float) -> Run:
    def run(rtol: float) -> tuple[np.ndarray, int]:
        path = ms.solve(flow, rho, t, rtol=rtol, atol=rtol / 100)
        return path.end.points.numpy(), path.provenance["statistics"]["evaluations"]

    return run


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b, axis=1).max())


def at_target(run: Run, truth: np.ndarray, first: float) -> dict[str, float]:
    """CPU seconds and evaluations at the error TARGET, between the runs on both sides of it."""
    found: list[tuple[float, float, int]] = []
    rtol = first
    while True:
        seconds, (end, evaluations) = least_cpu(lambda rtol=rtol: run(rtol))
        found.append((max(distance(end, truth), 1e-15), seconds, evaluations))
        below, above = [f for f in found if f[0] <= TARGET], [f for f in found if f[0] > TARGET]
        if below and above:
            break
        rtol = rtol / 10 if above else rtol * 10
        if not 1e-12 < rtol < 2e-2:
            break
    if not (below and above):
        error, seconds, evaluations = min(below, key=lambda run: run[1]) if below else min(found)
        return {"cpu": seconds, "evaluations": evaluations, "error": error}
    low, high = max(below), min(above)
    part = math.log(TARGET / low[0]) / math.log(high[0] / low[0])
    between = [low[k] ** (1 - part) * high[k] ** part for k in (1, 2)]
    return {"cpu": between[0], "evaluations": between[1], "error": TARGET}


def euler(field: Field, x: np.ndarray, t: float, truth: np.ndarray, seconds: float) -> dict[str, float]:
    """x <- (x + h v)/|x + h v|, 400 steps; how many the target would take at order one."""
    steps, y = 400, x
    for _ in range(steps):
        y = y + t / steps * field(y)
        y = y / np.linalg.norm(y, axis=1, keepdims=True)
    needed = steps * max(distance(y, truth) / TARGET, 1e-9)
    return {"cpu": needed * seconds, "evaluations": needed, "error": TARGET, "forecast": True}


def measure(
    n: int,
    d: int,
    beta: float,
    t: float,
    limit: float,
    threads: int,
    known: dict[str, dict[str, Any]],
    peers: list[str],
) -> dict[str, Any]:
    w, rho = weights(d), ms.Measure(ms.sphere.uniform(n, d, seed=1))
    x = rho.points.numpy()
    flow = ms.SelfAttention(w, beta)
    ms.solve(flow, rho, t, rtol=1e-6)  # whatever is compiled on the way
    torch.set_num_threads(threads)
    exact = ms.SelfAttention(w, beta, rtol=None)
    rtol = 1e-13 if n <= WHOLE else 1e-11
    truth = ms.solve(exact, rho, t, rtol=rtol, atol=rtol / 10, method="dop853").end.points.numpy()
    torch.set_num_threads(1)
    found: dict[str, dict[str, Any]] = {"metastable": at_target(our_run(flow, rho, t), truth, 1e-6)}
    name, field, seconds = fastest(w, beta, x, threads)
    runs: dict[str, Run] = {"SciPy DOP853": scipy_run(field, x, t, "DOP853")}
    if importlib.util.find_spec("torchdiffeq") is not None:
        runs |= {f"torchdiffeq {m}": torchdiffeq_run(field, x, t, m) for m in ("dopri5", "dopri8")}
    if importlib.util.find_spec("diffrax") is not None and n <= WHOLE:
        runs["diffrax Dopri8"] = diffrax_run(w, beta, x, t)
    if n * d <= LSODA_NUMBERS:
        runs["SciPy LSODA"] = scipy_run(field, x, t, "LSODA")
    more = found["metastable"]["evaluations"] / known["metastable"]["evaluations"] if known else 1.0
    for peer, run in ((name, run) for name, run in runs.items() if name in peers):
        before = known.get(peer)
        evaluations = more * before["evaluations"] if before else found["metastable"]["evaluations"]
        each = seconds
        if peer.startswith("diffrax"):  # its field is its own
            spent, (_, made) = cpu(lambda run=run: run(1e-2))
            each = spent / made
        if 3 * evaluations * each <= limit:
            found[peer] = at_target(run, truth, 1e-8)
        elif before:
            found[peer] = before | {"cpu": evaluations * each, "evaluations": evaluations, "forecast": True}
    if "Euler" in peers and 400 * seconds <= limit:
        found["Euler"] = euler(field, x, t, truth, seconds)
    elif "Euler" in peers and "Euler" in known:
        found["Euler"] = known["Euler"] | {"cpu": known["Euler"]["evaluations"] * seconds}
    return {"n": n, "d": d, "beta": beta, "t": t, "field": name, "field_s": seconds, "found": found}


def place(row: dict[str, Any]) -> tuple[float, ...]:
    return row["d"], row["beta"], row["t"], row["n"]


def show(rows: list[dict[str, Any]]) -> None:
    table = Table(
        title=f"whole runs to an error of {TARGET:g}: CPU time as multiples of metastable's (evaluations)"
    )
    for column in ("d", "n", "beta", "t", "metastable [s]", "evaluations", *PEERS):
        table.add_column(column, justify="right")
    for row in rows:
        found = row["found"]
        ours = found["metastable"]
        ratios = [
            f"{'~' if 'forecast' in p else ''}{p['cpu'] / ours['cpu']:.2g} ({p['evaluations']:.0f})"
            + (f" at {p['error']:.0e}" if p["error"] > 1.01 * TARGET else "")
            if (p := found.get(peer))
            else "-"
            for peer in PEERS
        ]
        cells = (str(row["d"]), f"{row['n']:,}", f"{row['beta']:g}", f"{row['t']:g}", f"{ours['cpu']:.3g}")
        table.add_row(*cells, f"{ours['evaluations']:.0f}", *ratios)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="also n = 20,000 for d <= 3, and t = 20")
    parser.add_argument("--quick", action="store_true", help="n = 200, beta = 64 alone")
    parser.add_argument("--d", type=int, nargs="+", default=[2, 3, 8, 64, 384], help="dimensions")
    parser.add_argument("--n", type=int, nargs="+", help="numbers of tokens")
    parser.add_argument("--beta", type=float, nargs="+", help="inverse temperatures")
    parser.add_argument("--t", type=float, nargs="+", help="final times")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=PEERS, help="who runs beside metastable")
    parser.add_argument("--threads", type=int, default=1, help="of the reference, and of peers for n > 2000")
    parser.add_argument("--limit", type=float, default=30.0, help="CPU seconds above which a peer is forecast")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the JSON")
    parser.add_argument("--fresh", action="store_true", help="measure again what stands in the file")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="files whose cells are taken over")
    parser.add_argument("--table", action="store_true", help="measure nothing, print what stands in the file")
    options = parser.parse_args()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    file, rows = options.out / "whole_run.json", {}
    for held in [*([] if options.fresh or not file.exists() else [file]), *options.merge]:
        rows |= {place(row): row for row in json.loads(held.read_text())["rows"]}

    def write() -> list[dict[str, Any]]:
        ordered = [rows[key] for key in sorted(rows)]
        file.write_text(json.dumps({"target": TARGET, "rows": ordered}, indent=1) + "\n")
        return ordered

    versions = {"metastable": ms.__version__, "blas_threads": os.environ.get("OPENBLAS_NUM_THREADS", "all")}
    betas = options.beta or ((64.0,) if options.quick else (1.0, 64.0, 1000.0))
    for d in () if options.table else options.d:
        sizes = options.n or ((200,) if options.quick else (200, 2000, 20_000) if options.full else (200, 2000))
        for beta, t in itertools.product(betas, options.t or ((2.0, 20.0) if options.full else (2.0,))):
            for n in (n for n in sizes if n <= 2000 or d <= 3):
                if (d, beta, t, n) in rows:
                    continue
                smaller = [
                    rows[d, beta, t, fewer] for fewer in (200, 2000) if fewer < n and (d, beta, t, fewer) in rows
                ]
                known = smaller[-1]["found"] if smaller else {}
                row = measure(n, d, beta, t, options.limit, options.threads, known, options.peers)
                row |= {"machine": machine() | versions}
                rows[place(row)] = row
                write()
                ours = row["found"]["metastable"]
                console.print(f"d = {d}, n = {n}, beta = {beta:g}, t = {t:g}: {ours['cpu']:.3g} s", style="dim")
    torch.set_num_threads(threads)
    show(write())


if __name__ == "__main__":
    main()
