"""The mean field on S^2 through the exit to t = 20: two resolutions and, where there is an axis, two methods.

At t = 2, 5, 10, 20, sqrt E|Phi - Phi'|^2 over rho_0, which bounds W2, between
    resolutions  the last two bundles of lines (`meanfield.solve`),
    axial        the last two runs of the solver for laws with an axis (`meanfield.solve_axial`),
    methods      the bundle and the axial run.
Families (B = 1 but for G and C, laws skewed or von Mises-Fisher about e = (1, 0, 0) or l = (1, .5, .2)/|.|):
    axis  V = diag(2, 1, 1), 1 + .6 <e, x>          axis'  V = diag(1, .5, .5), vMF(e, 1)
    I     V = diag(2, 1, .5), 1 + .6 <l, x>         I'     V = diag(1, .5, .2), vMF(l, 1)
    G     the M of I with B = [[1, .5, 0], [0, 1, 0], [0, 0, 1]], whose clusters leave at t ~ beta/8
    C     V = diag(1, 2, .5), B = diag(4, 1, 1), whose clusters leave for the top of V at t = 5 to 10
Rows are added to (or replaced in) the results file one by one; --merge adds those of other files.
--lines runs pilots of so many lines to --until instead, and prints how much closer than that lines should be,
where, and how far the map is from that of the last pilot on the lines that they share.

    python benchmarks/meanfield_sphere.py [--betas 4 16 64 256] [--families axis I G] [--tol 1e-5] [--until 20]
                                          [--device cuda] [--axial] [--print] [--quick] [--merge FILE ...]
                                          [--lines 96 128 256] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch

import metastable as ms
from metastable.flows import SelfAttention
from metastable.meanfield import Skewed, VonMisesFisher, crowding, refine_bundle, solve, solve_axial
from metastable.meanfield.bundle import Bundle, flow_map
from metastable.meanfield.circle import sharpness
from metastable.meanfield.longitudes import Crowded
from metastable.meanfield.panel_run import Accuracy

TIMES = [2.0, 5.0, 10.0, 20.0]
RESULTS = Path(__file__).parent / "results"
SHEAR = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
M = np.diag([2.0, 1.0, 0.5])
E, L = [1.0, 0.0, 0.0], [1.0, 0.5, 0.2]
FAMILIES = {
    "axis": (ms.AttentionWeights(V=np.diag([2.0, 1.0, 1.0]), B=np.eye(3)), Skewed(E, 0.6)),
    "axis'": (ms.AttentionWeights(V=np.diag([1.0, 0.5, 0.5]), B=np.eye(3)), VonMisesFisher(E, 1.0)),
    "I": (ms.AttentionWeights(V=M, B=np.eye(3)), Skewed(L, 0.6)),
    "I'": (ms.AttentionWeights(V=np.diag([1.0, 0.5, 0.2]), B=np.eye(3)), VonMisesFisher(L, 1.0)),
    "C": (ms.AttentionWeights(V=np.diag([1.0, 2.0, 0.5]), B=np.diag([4.0, 1.0, 1.0])), Skewed(L, 0.6)),
    "G": (ms.AttentionWeights(V=M @ np.linalg.inv(SHEAR).T, B=SHEAR), Skewed(L, 0.6)),
}


def row(family: str, beta: float, tol: float, times: list[float], device: str, axial_only: bool) -> dict:
    weights, law = FAMILIES[family]
    found: dict = {"family": family, "beta": beta, "tol": tol, "times": times}
    path = None
    if not axial_only:
        start, wall = time.process_time(), time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            told = sys.stderr.isatty()
            path = solve(weights, beta, law, times[-1], tol=tol, times=times, device=device, progress=told)
        found |= {
            "resolutions": path.errors.tolist(),
            "converged": path.converged,
            "nodes": path.provenance["meanfield"]["solver_nodes"],
            "cpu_seconds": time.process_time() - start,
            "wall_seconds": time.perf_counter() - wall,
            "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        }
    if family.startswith("axis"):
        start = time.process_time()
        axial = solve_axial(weights, beta, law, times, E, tol=tol)
        found |= {
            "axial": axial.errors.tolist(),
            "axial_converged": axial.converged,
            "axial_nodes": axial.nodes,
            "axial_cpu_seconds": time.process_time() - start,
        }
        if path is not None:
            apart = [path.points[i] - axial.carry(i, path.start.points) for i in range(len(times))]
            found["methods"] = [float(path.mass @ gap.square().sum(1)) ** 0.5 for gap in apart]
    return found


def pilots(family: str, beta: float, tol: float, times: list[float], counts: list[int]) -> str:
    """A line for every number of lines: see the module."""
    weights, law = FAMILIES[family]
    flow, misplaced = SelfAttention(weights, beta), 0.3 * tol**2
    frame, grading = refine_bundle._laid_out(weights, times[-1], misplaced)
    accuracy = Accuracy.within(refine_bundle.PILOT * misplaced, crowding.PILOT_WIDTH)
    eps = refine_bundle.SIGNED * misplaced
    runs = []
    for count in counts:
        bundle = Bundle.of(law, frame, count, grading)
        runs.append((bundle, flow_map(flow, bundle, np.array(times), sharpness(flow), accuracy, 2**20)))
    out = [f"{family}, beta = {beta:g}, tol = {tol:g}: lines, closer by at most, at phi, as many in all; distance"]
    for bundle, found in runs:
        wanted = crowding.crowding(bundle, found, eps, crowding.NOISE * accuracy.mass)
        crowded = Crowded(grading, crowding.factor(wanted)).length / grading.length * len(wanted)
        common = math.gcd(len(wanted), counts[-1])
        gaps = refine_bundle._differences(common, bundle, found, *runs[-1])
        apart = "  ".join(f"{t:2g}: {gap:.0e}" for t, gap in zip(times, gaps, strict=True))
        at = bundle.longitudes[int(np.argmax(wanted))]
        out.append(f"{len(wanted):5d}  {wanted.max():5.2f}  {at:6.4f}  {crowded:4.0f}   {apart}")
    return "\n".join(out)


def table(rows: list[dict]) -> str:
    width = 4 * 12
    lines = [f"{'':6} {'beta':>5} {'':11} {'W2 at the times, at most':{width}} converged   nodes   CPU s"]
    for r in sorted(rows, key=key):
        for kind in ("resolutions", "axial", "methods"):
            if kind not in r:
                continue
            values = "  ".join(f"{t:2g}: {x:.0e}" for t, x in zip(r["times"], r[kind], strict=True))
            text = f"{r['family']:6} {r['beta']:5g} {kind:11} {values:{width}} "
            if kind == "resolutions":
                text += f"{verdict(r['converged']):9} {r['nodes']:7d} {r['cpu_seconds']:7.0f}"
            elif kind == "axial":
                text += f"{verdict(r['axial_converged']):9} {r['axial_nodes']:7d} {r['axial_cpu_seconds']:7.0f}"
            else:
                text += verdict(max(r[kind]) < r["tol"])
            lines.append(text)
    return "\n".join(lines)


def verdict(converged: bool) -> str:
    return "yes" if converged else "NO"


def key(r: dict) -> tuple:
    return r["family"], r["beta"], r["tol"], tuple(r["times"])


def add(file: Path, fresh: list[dict]) -> None:
    """Rows of the file, with what the fresh ones say about the same cases."""
    known: dict[tuple, dict] = {}
    for r in (*stored(file), *fresh):
        known[key(r)] = known.get(key(r), {}) | r
    file.write_text(json.dumps({"rows": sorted(known.values(), key=key)}, indent=1) + "\n")


def stored(file: Path) -> list[dict]:
    return json.loads(file.read_text())["rows"] if file.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--betas", type=float, nargs="+", default=[4, 16, 64, 256])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--tol", type=float, default=1e-5)
    parser.add_argument("--until", type=float, default=20.0, help="last of the times 2, 5, 10, 20")
    parser.add_argument("--print", action="store_true", help="print the stored table, run nothing")
    parser.add_argument("--quick", action="store_true", help="one case")
    parser.add_argument("--device", default="cpu", help="where the bundles compute attention")
    parser.add_argument("--axial", action="store_true", help="only the solver for laws with an axis")
    parser.add_argument("--lines", type=int, nargs="+", default=[], help="pilots of so many lines, nothing else")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], help="JSON files whose rows are added")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON")
    options = parser.parse_args()
    if options.quick:
        options.betas, options.families, options.tol, options.until = [4.0], ["axis"], 1e-2, 20.0
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "meanfield_sphere.json"
    times = [t for t in TIMES if t <= options.until]
    if options.lines:
        looks = np.arange(1.0, options.until + 1).tolist()
        for beta in options.betas:
            for family in options.families:
                print(pilots(family, beta, options.tol, looks, options.lines), flush=True)
        return
    for other in options.merge:
        add(file, stored(other))
    if not (options.print or options.merge):
        for beta in options.betas:
            for family in options.families:
                fresh = row(family, beta, options.tol, times, options.device, options.axial)
                add(file, [fresh])
                print(table([fresh]), flush=True)
    print(table(stored(file)))


if __name__ == "__main__":
    main()
