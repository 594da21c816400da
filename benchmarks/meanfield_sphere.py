"""The mean field on S^2 at late times: two resolutions and, where there is an axis, two methods side by side.

For every family and temperature, at t = 2, 5, 10, 20: the change of the flow map between the last two bundles of
lines, and its distance from the solver for laws with an axis, sqrt E|Phi - Phi'|^2 over rho_0; either bounds W2.
Families: `axis` V = diag(2, 1, 1), B = 1; `I` V = diag(2, 1, .5), B = 1, a law without symmetry; `G` the same M
with a sheared B = [[1, .5, 0], [0, 1, 0], [0, 0, 1]], whose clusters leave at t ~ beta/8. Rows are added to (or
replaced in) the results file one by one.

    python benchmarks/meanfield_sphere.py [--betas 16 64 256] [--families axis I G] [--tol 1e-5] [--until 20]
                                          [--print] [--quick] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

import metastable as ms
from metastable.meanfield import Skewed, solve, solve_axial

TIMES = [2.0, 5.0, 10.0, 20.0]
RESULTS = Path(__file__).parent / "results"
SHEAR = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
M = np.diag([2.0, 1.0, 0.5])
AXIS = [1.0, 0.0, 0.0]
FAMILIES = {
    "axis": (ms.AttentionWeights(V=np.diag([2.0, 1.0, 1.0]), B=np.eye(3)), Skewed(AXIS, 0.6)),
    "I": (ms.AttentionWeights(V=M, B=np.eye(3)), Skewed([1.0, 0.5, 0.2], 0.6)),
    "G": (ms.AttentionWeights(V=M @ np.linalg.inv(SHEAR).T, B=SHEAR), Skewed([1.0, 0.5, 0.2], 0.6)),
}


def row(family: str, beta: float, tol: float, times: list[float]) -> dict:
    weights, law = FAMILIES[family]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = solve(weights, beta, law, times[-1], tol=tol, times=times)
    middle = time.process_time()
    found = {
        "family": family,
        "beta": beta,
        "tol": tol,
        "times": times,
        "errors": path.errors.tolist(),
        "converged": path.converged,
        "nodes": path.provenance["meanfield"]["solver_nodes"],
        "cpu_seconds": middle - start,
    }
    if family == "axis":
        axial = solve_axial(weights, beta, law, times, AXIS, tol=tol)
        found["axial_errors"] = axial.errors.tolist()
        found["axial_cpu_seconds"] = time.process_time() - middle
        apart = (path.points[i] - axial.carry(i, path.start.points) for i in range(len(times)))
        found["gap"] = [float(path.mass @ gap.square().sum(1)) ** 0.5 for gap in apart]
    return found


def table(rows: list[dict]) -> str:
    lines = [f"{'':5} {'beta':>5} {'tol':>6}  resolutions at the times" + " " * 28 + "nodes   CPU s  methods"]
    for r in sorted(rows, key=lambda r: (r["family"], r["beta"], r["times"][-1])):
        errors, gaps = (
            "  ".join(f"{t:g}: {x:.1e}" for t, x in zip(r["times"], values, strict=True))
            for values in (r["errors"], r.get("gap", [0.0] * len(r["times"])))
        )
        lines.append(
            f"{r['family']:5} {r['beta']:5g} {r['tol']:6.0e}  {errors}{' ' if r['converged'] else '!'} "
            f"{r['nodes']:7d} {r['cpu_seconds']:7.0f}  {gaps if 'gap' in r else ''}"
        )
    lines.append("\n! = not resolved to tol, and the path says so.")
    return "\n".join(lines)


def stored(file: Path) -> list[dict]:
    return json.loads(file.read_text())["rows"] if file.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--betas", type=float, nargs="+", default=[16, 64, 256])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--tol", type=float, default=1e-5)
    parser.add_argument("--until", type=float, default=20.0, help="last of the times 2, 5, 10, 20")
    parser.add_argument("--print", action="store_true", help="print the stored table, run nothing")
    parser.add_argument("--quick", action="store_true", help="one case")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON")
    options = parser.parse_args()
    if options.quick:
        options.betas, options.families, options.tol, options.until = [2.0], ["axis"], 1e-2, 5.0
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "meanfield_sphere.json"
    times = [t for t in TIMES if t <= options.until]
    if not options.print:
        for beta in options.betas:
            for family in options.families:
                fresh = row(family, beta, options.tol, times)
                key = (family, beta, fresh["tol"], fresh["times"])
                kept = [r for r in stored(file) if (r["family"], r["beta"], r["tol"], r["times"]) != key]
                file.write_text(json.dumps({"rows": [*kept, fresh]}, indent=1) + "\n")
                print(table([fresh]).splitlines()[1], flush=True)
    print(table(stored(file)))


if __name__ == "__main__":
    main()
