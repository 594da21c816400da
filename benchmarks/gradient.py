"""What does a gradient cost? In runs of solve, and beside torchdiffeq's adjoint at equal error of the gradient.

    python benchmarks/gradient.py [--quick] [--threads 2] [--only few | many | random]

Derivatives of a linear function of the last tokens with respect to V, B, beta and the first tokens. Tolerances fall
by decades until the largest error of any derivative, relative to the largest of its kind, is below 1e-6 against a
gradient at 1e-11; CPU time of the process there, on one thread, the least of several rounds in which both take
turns. `runs` is the time of a gradient in units of `solve` with the same arguments. torchdiffeq (where it is
installed) has a dense torch right-hand side, dopri5 or dopri8, whichever is faster, and the same tolerance for its
adjoint.

A second table has many tokens, where `solve` takes attention in O(n) on the circle and on S^2: the cost alone, of
softmax attention with these weights, with V = B = I and with a random B, of causal and unnormalised attention and
of two heads, at one tolerance. With 8000 tokens in more dimensions, where both go over all pairs, it is that of one
step of "rk4".

A third draws flow, weights, n = 50 to 6000, d = 2 to 64, beta = .5 to 500, time and tolerance at random. Where
tokens come to rest a gradient needs more steps than a run (`metastable.gradient`): both numbers are given.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import metastable as ms
from attend import RESULTS, machine
from metastable.solve import Gradient, gradient

TARGET = 1e-6
"""Relative error of a derivative at which contestants are compared."""
ALLOWED = 5.0
"""Largest cost of a gradient in runs: what it is asked for."""
TIMES = 2.0
BETA = 8.0
OTHERS = (1.0, 200.0)
"""Where a run in d = 2, 3 gathers keys into few numbers, or leaves out most."""
MANY_TOLERANCE, MANY_TIME = 1e-7, 0.5
"""rtol = atol and time of the runs with many tokens."""
KINDS = ("random", "triangular", "V = B = I")
RANDOM = 60
"""Cases of the third table."""
LONGEST_RUN = 1.0
"""CPU seconds of a run beyond which another case is drawn."""
Derivatives = tuple[torch.Tensor, ...]


def weights(d: int) -> ms.AttentionWeights:
    """An upper triangular M with a gap, in general position."""
    V = torch.diag(torch.linspace(2.0, 1.0, d, dtype=torch.float64))
    B = torch.eye(d, dtype=torch.float64) + 1.2 / max(d, 4) * torch.ones(d, d, dtype=torch.float64).triu(1)
    return ms.AttentionWeights(V=V, B=B)


def flows(w: ms.AttentionWeights) -> dict[str, ms.Flow]:
    """The flows whose cost is measured; the first is that of the peers."""
    return {
        "softmax": ms.SelfAttention(w, BETA),
        "causal": ms.Causal(ms.SelfAttention(w, BETA), alibi=1.0),
        "unnormalised": ms.UnnormalizedAttention(w, 1.0),
        "two heads": ms.MultiHead([ms.SelfAttention(w, BETA), ms.SelfAttention(w, 1.0)], combine="mean"),
    }


def parts(found: Gradient) -> Derivatives:
    """All derivatives."""
    return found.V, found.B, torch.as_tensor(found.beta, dtype=torch.float64), found.points


def off(found: Derivatives, exact: Derivatives) -> float:
    """Largest error of any derivative relative to the largest of its kind."""
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(found, exact, strict=True))


def least(*works: Callable[[], Any], rounds: int) -> list[float]:
    """Least CPU time of the process for each, taking turns."""
    spent = [math.inf] * len(works)
    for _ in range(rounds):
        for number, work in enumerate(works):
            began = time.process_time()
            work()
            spent[number] = min(spent[number], time.process_time() - began)
    return spent


class Dense(torch.nn.Module):
    """x' = P_x V m_beta(x), written out, for torchdiffeq."""

    def __init__(self, w: ms.AttentionWeights) -> None:
        super().__init__()
        self.V, self.B = torch.nn.Parameter(w.V.clone()), torch.nn.Parameter(w.B.clone())
        self.beta = torch.nn.Parameter(torch.tensor(BETA, dtype=torch.float64))

    def forward(self, _t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """The field at points of any length."""
        x = x / torch.linalg.vector_norm(x, dim=1, keepdim=True)
        moved = (torch.softmax(self.beta * (x @ self.B) @ x.T, dim=1) @ x) @ self.V.T
        return moved - (moved * x).sum(1, keepdim=True) * x


def peer(w: ms.AttentionWeights, points: torch.Tensor, c: torch.Tensor, method: str, tol: float) -> Derivatives:
    """The derivatives by torchdiffeq's continuous adjoint."""
    from torchdiffeq import odeint_adjoint

    field, x = Dense(w), points.clone().requires_grad_()
    span = torch.tensor([0.0, TIMES], dtype=torch.float64)
    end = odeint_adjoint(field, x, span, rtol=tol, atol=tol, method=method)[-1]
    V, B, beta, start = torch.autograd.grad((c * end).sum(), (field.V, field.B, field.beta, x))
    return V, B, beta, start - (start * points).sum(1, keepdim=True) * points


def first_below(make: Callable[[float], Derivatives], exact: Derivatives, coarsest: int) -> tuple[float, float]:
    """(tolerance, error) of the coarsest run, a decade apart, that meets the target; the first is 10^-coarsest."""
    for decade in range(coarsest, 11):
        error = off(make(10.0**-decade), exact)
        if error < TARGET:
            return 10.0**-decade, error
    return math.nan, math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 100 tokens")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON file")
    parser.add_argument(
        "--only",
        choices=("few", "many", "random"),
        help="the first, second or third table; the others stay in the file",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the third")
    parser.add_argument("--threads", type=int, default=1, help="of torch and of our own kernels")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    file = arguments.out / "gradient.json"
    told = json.loads(file.read_text()) if arguments.only and file.exists() else {}
    told["machine"], found = machine(), []
    for name, table in (("few", few_tokens), ("many", many_tokens)):
        if arguments.only in (None, name):
            told[name] = table(arguments.quick)
            found += told[name]
    if found:
        beyond = [(each["flow"], each["d"], each["n"]) for each in found if each["runs"] > ALLOWED]
        worst = max(each["runs"] for each in found)
        Console().print(
            f"largest cost {worst:.2f} runs; more than {ALLOWED:g}, what is asked for: {beyond or 'none'}"
        )
    if arguments.only in (None, "random"):
        told |= {"seed": arguments.seed, "random": anywhere(8 if arguments.quick else RANDOM, arguments.seed)}
    arguments.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(told, indent=1) + "\n")


def few_tokens(quick: bool) -> list[dict[str, Any]]:
    """The first table."""
    table = Table(title=f"gradients with error below {TARGET:g}, CPU time")
    for column in ("flow", "d", "n", "steps", "solve", "gradient", "runs", "error", "torchdiffeq", "ratio"):
        table.add_column(column, justify="right")
    rows: list[dict[str, Any]] = []
    small, large = [(2, 100), (3, 100), (8, 64)], [(2, 200), (3, 200), (8, 200), (64, 200)]
    for d, n in small if quick else large:
        w, points = weights(d), ms.sphere.uniform(n, d, seed=0)
        c = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        for name, flow in flows(w).items():
            told = row(name, flow, w, points, c, quick)
            rows.append(told)
            beside = (f"{told['torchdiffeq']:.2f} s", f"{told['ratio']:.1f}x") if "ratio" in told else ("", "")
            spent = (
                f"{told['solve']:.3f} s",
                f"{told['gradient']:.3f} s",
                f"{told['runs']:.2f}",
                f"{told['error']:.0e}",
            )
            table.add_row(name, str(d), str(n), str(told["steps"]), *spent, *beside)
    Console(width=130).print(table)
    return rows


def many_tokens(quick: bool) -> list[dict[str, Any]]:
    """The second table."""
    table = Table(title=f"many tokens, rtol = {MANY_TOLERANCE:g}, t = {MANY_TIME:g}, CPU time")
    for column in ("flow", "d", "n", "steps", "kernel", "solve", "gradient", "runs"):
        table.add_column(column, justify="right")
    rows: list[dict[str, Any]] = []
    sizes = [(2, 1000), (2, 20_000), (3, 4000)]
    if not quick:
        sizes += [(2, 4000), (3, 1000), (3, 2000), (3, 20_000), (8, 2000), (8, 8000), (64, 2000)]
    for d, n in sorted(sizes):
        points = ms.sphere.uniform(n, d, seed=0)
        c = torch.randn(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        one = torch.eye(d, dtype=torch.float64)
        named = flows(weights(d)) if d <= 8 else {"softmax": ms.SelfAttention(weights(d), BETA)}
        named["V = B = I"] = ms.SelfAttention(ms.AttentionWeights(V=one, B=one), BETA)
        if (d, n) in ((2, 4000), (3, 2000), (3, 4000)):
            named |= {f"beta = {beta:g}": ms.SelfAttention(weights(d), beta) for beta in OTHERS}
            drawn = ms.AttentionWeights(
                V=weights(d).V, B=torch.randn(d, d, generator=torch.Generator().manual_seed(2))
            )
            named["random B, beta = 200"] = ms.SelfAttention(drawn, 200.0)
        for name, flow in named.items():
            if (name != "causal" or n <= 4000) and (n < 8000 or name in ("softmax", "V = B = I")):
                told = runs_of(flow, points, c, pairs=n * n * (d > 3))
                rows.append({"flow": name, "d": d, "n": n} | told)
                spent = (f"{told['solve']:.3f} s", f"{told['gradient']:.3f} s", f"{told['runs']:.2f}")
                table.add_row(name, str(d), str(n), str(told["steps"]), told["kernel"], *spent)
    Console(width=130).print(table)
    return rows


def anywhere(count: int, seed: int) -> list[dict[str, Any]]:
    """The third table."""
    table = Table(title="flows, sizes and tolerances at random, CPU time")
    for column in ("flow", "weights", "d", "n", "beta", "t", "rtol", "solve", "steps", "of gradient", "runs"):
        table.add_column(column, justify="right")
    draw, rows = np.random.default_rng(seed), []
    while len(rows) < count:
        told, flow, points = random_case(draw)
        given = {"rtol": told["rtol"], "atol": told["rtol"]}
        c = torch.from_numpy(draw.normal(size=points.shape))
        forward = lambda f=flow, x=points, g=given, t=told["t"]: ms.solve(f, x, t, **g)  # noqa: E731
        ours = lambda f=flow, x=points, g=given, t=told["t"], c=c: gradient(f, x, t, lambda y: (c * y).sum(), **g)  # noqa: E731
        forward()  # whatever is compiled on the way
        if least(forward, rounds=1)[0] > LONGEST_RUN:
            continue
        steps, by_gradient = forward().provenance["statistics"]["accepted_steps"], ours().steps
        run, whole = least(forward, ours, rounds=4)
        told |= {"solve": run, "steps": steps, "gradient_steps": by_gradient, "runs": whole / run}
        rows.append(told)
    for r in sorted(rows, key=lambda r: -r["runs"]):
        sizes = (str(r["d"]), str(r["n"]), f"{r['beta']:.3g}", f"{r['t']:g}", f"{r['rtol']:g}")
        spent = (f"{r['solve']:.4f} s", str(r["steps"]), str(r["gradient_steps"]), f"{r['runs']:.2f}")
        table.add_row(r["flow"], r["weights"], *sizes, *spent)
    Console(width=130).print(table)
    costs = [r["runs"] for r in rows]
    above = sum(cost > ALLOWED for cost in costs)
    Console().print(
        f"median {median(costs):.2f} runs, largest {max(costs):.2f}; more than {ALLOWED:g}: {above} of {len(rows)}"
    )
    return rows


def random_case(draw: np.random.Generator) -> tuple[dict[str, Any], ms.Flow, torch.Tensor]:
    """A flow and its tokens, and what they are called."""
    d = int(draw.choice([2, 2, 3, 3, 4, 5, 6, 8, 12, 24, 48, 64]))
    n = int(math.exp(draw.uniform(math.log(50), math.log(6000 if d <= 3 else 3000 if d <= 8 else 1000))))
    name, kind = str(draw.choice(["softmax", "causal", "unnormalised", "two heads"])), str(draw.choice(KINDS))
    beta = math.exp(draw.uniform(math.log(0.5), math.log(5.0 if name == "unnormalised" else 500.0)))

    def matrix() -> torch.Tensor:
        return torch.from_numpy(draw.normal(size=(d, d))) / math.sqrt(d)

    one = torch.eye(d, dtype=torch.float64)
    w = {"triangular": weights(d), "V = B = I": ms.AttentionWeights(V=one, B=one)}.get(kind)
    w = w or ms.AttentionWeights(V=matrix(), B=matrix())
    flow: ms.Flow = (ms.UnnormalizedAttention if name == "unnormalised" else ms.SelfAttention)(w, beta)
    if name == "causal":
        flow = ms.Causal(flow)
    elif name == "two heads":
        flow = ms.MultiHead([flow, ms.SelfAttention(ms.AttentionWeights(V=matrix(), B=matrix()), beta)])
    told = {"flow": name, "weights": kind, "d": d, "n": n, "beta": beta, "t": float(draw.choice([0.2, 0.5, 1.0]))}
    told["rtol"] = 10.0 ** -int(draw.integers(4, 11))
    return told, flow, ms.sphere.uniform(n, d, seed=int(draw.integers(10**6)))


def runs_of(flow: ms.Flow, points: torch.Tensor, c: torch.Tensor, pairs: int) -> dict[str, Any]:
    """Cost of a gradient in runs, without a look at its error; pairs: as many as go over all of them."""
    large = pairs > 3e7
    step = {"method": "rk4", "step": MANY_TIME} if large else {}
    given = {"rtol": MANY_TOLERANCE, "atol": MANY_TOLERANCE} | step

    def ours() -> Gradient:
        return gradient(flow, points, MANY_TIME, lambda x: (c * x).sum(), **given)

    def forward() -> ms.Path:
        return ms.solve(flow, points, MANY_TIME, **given)

    kernels, steps = forward().provenance["attention"]["kernels"], ours().steps
    run, whole = least(forward, ours, rounds=2 if large else 3)
    return {"steps": steps, "kernel": ", ".join(kernels), "solve": run, "gradient": whole, "runs": whole / run}


def row(
    name: str, flow: ms.Flow, w: ms.AttentionWeights, points: torch.Tensor, c: torch.Tensor, quick: bool
) -> dict[str, Any]:
    """One line of the table."""

    def ours(tol: float) -> Derivatives:
        return parts(gradient(flow, points, TIMES, lambda x: (c * x).sum(), rtol=tol, atol=tol))

    exact = ours(1e-11)
    tol, error = first_below(ours, exact, 5)
    run = lambda: ms.solve(flow, points, TIMES, rtol=tol, atol=tol)  # noqa: E731
    run()
    forward, whole = least(run, lambda: ours(tol), rounds=5)
    steps = gradient(flow, points, TIMES, lambda x: (c * x).sum(), rtol=tol, atol=tol).steps
    found = {"flow": name, "d": points.shape[1], "n": len(points), "steps": steps, "rtol": tol, "error": error}
    found |= {"solve": forward, "gradient": whole, "runs": whole / forward}
    if name == "softmax" and importlib.util.find_spec("torchdiffeq") is not None:
        spent = {}
        for method in ("dopri5", "dopri8"):
            by_peer = lambda tol, method=method: peer(w, points, c, method, tol)  # noqa: E731
            peer_tol, peer_error = first_below(by_peer, exact, 7)
            if math.isfinite(peer_tol):
                spent[method] = (*least(lambda t=peer_tol, f=by_peer: f(t), rounds=1), peer_tol, peer_error)
        if spent:
            method = min(spent, key=lambda m: spent[m][0])
            time_, peer_tol, peer_error = spent[method]
            found |= {"peer": method, "torchdiffeq": time_, "peer_rtol": peer_tol, "peer_error": peer_error}
            found["ratio"] = time_ / whole
    return found


if __name__ == "__main__":
    main()
