"""Two independent solvers of the mean field on the circle, side by side: nodes on panels and the density F.

For every family, temperature and law: sqrt E|Phi_nodes(x) - Phi_density(x)|^2 over rho_0, which bounds their W2
distance, at t = 1, 2, 4, 6, 8, 10. Rows are added to (or replaced in) the results file one by one.

    python benchmarks/meanfield_agreement.py [--betas 1 4 16 64 128 256] [--families ..] [--laws ..] [--print]
                                             [--quick] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from pathlib import Path

import metastable as ms
from metastable.meanfield import Uniform, evolve_density, reference_skew, solve
from metastable.papers.concentration.families import commuting, plain, repelling, sheared

TIMES = [1.0, 2.0, 4.0, 6.0, 8.0, 10.0]
LAWS = {"uniform": Uniform(2), "skew": reference_skew()}
RESULTS = Path(__file__).parent / "results"


FAMILIES = {"G.5": sheared(0.5), "G1": sheared(1.0), "C": commuting(), "I": plain(), "N": repelling()}


def row(family: str, beta: float, law: str, tol: float) -> dict:
    weights, rho = FAMILIES[family], LAWS[law]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = solve(weights, beta, rho, TIMES[-1], tol=tol, times=TIMES)
    middle = time.process_time()
    density = evolve_density(ms.SelfAttention(weights, beta), rho, TIMES)
    end = time.process_time()
    angles = ms.sphere.angles(path.start.points).numpy()
    gaps = []
    for i in range(len(TIMES)):
        image = ms.sphere.from_angles(density.carry(i, angles))
        gaps.append(math.sqrt(float(path.mass @ (path.points[i] - image).square().sum(1))))
    return {
        "family": family,
        "beta": beta,
        "law": law,
        "times": TIMES,
        "gap": gaps,
        "tol": tol,
        "nodes_error": path.error,
        "nodes_converged": path.converged,
        "nodes": path.provenance["meanfield"]["solver_nodes"],
        "nodes_cpu_seconds": middle - start,
        "cells": density.cells,
        "density_cpu_seconds": end - middle,
        "mass_defect": density.mass_defect(),
        "clipped": density.clipped,
    }


def table(rows: list[dict]) -> str:
    lines = [
        f"{'':4} {'beta':>5} {'law':<8}"
        + "".join(f"  t={t:<6g}" for t in TIMES)
        + "  estimate  nodes  CPU s  cells  CPU s"
    ]
    for r in sorted(rows, key=lambda r: (r["family"], r["beta"], r["law"])):
        lines.append(
            f"{r['family']:4} {r['beta']:5g} {r['law']:<8}"
            + "".join(f"  {gap:.1e} " for gap in r["gap"])
            + f"  {r['nodes_error']:.1e}{' ' if r['nodes_converged'] else '!'} {r['nodes']:6d} "
            + f"{r['nodes_cpu_seconds']:6.1f} {r['cells']:6d} {r['density_cpu_seconds']:6.1f}"
        )
    worst = max(max(r["gap"]) for r in rows)
    lines.append(f"\n{len(rows)} cases, largest distance between the two methods {worst:.2g} in W2.")
    return "\n".join(lines)


def stored(file: Path) -> list[dict]:
    return json.loads(file.read_text())["rows"] if file.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--betas", type=float, nargs="+", default=[1, 4, 16, 64, 128, 256])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=list(FAMILIES))
    parser.add_argument("--laws", nargs="+", default=list(LAWS), choices=list(LAWS))
    parser.add_argument("--tol", type=float, default=1e-6)
    parser.add_argument("--print", action="store_true", help="print the stored table, run nothing")
    parser.add_argument("--quick", action="store_true", help="one case")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the JSON")
    options = parser.parse_args()
    if options.quick:
        options.betas, options.families, options.laws = [4.0], ["I"], ["skew"]
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "meanfield_agreement.json"
    if not options.print:
        for beta in options.betas:
            for family in options.families:
                for law in options.laws:
                    fresh = row(family, beta, law, options.tol)
                    key = (family, beta, law)
                    kept = [r for r in stored(file) if (r["family"], r["beta"], r["law"]) != key]
                    file.write_text(json.dumps({"rows": [*kept, fresh]}, indent=1) + "\n")
                    print(table([fresh]).splitlines()[1], flush=True)
    print(table(stored(file)))


if __name__ == "__main__":
    main()
