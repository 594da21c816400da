"""Transport against POT: CPU time of metastable's exact solvers and of POT's, side by side in one process.

    python benchmarks/transport.py [--quick] [--out benchmarks/results]

Every row runs both sides alternately and compares medians of process time, so that a busy machine hurts both alike.
POT gets its cost matrix for free: only its solver is timed. Where both sides solve the same problem the last column
is the difference of their values.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import ot

import metastable
from metastable import sphere
from metastable.measure import Measure
from metastable.transport import ground_cost, wasserstein


def cpu_seconds(call: Callable[[], float]) -> tuple[float, float]:
    start = time.process_time()
    value = call()
    return time.process_time() - start, float(value)


def row(
    name: str, ours: Callable[[], float], peer: Callable[[], float], *, repeats: int, same: bool = True
) -> dict[str, object]:
    ours()  # compile
    times: tuple[list[float], list[float]] = ([], [])
    values = [0.0, 0.0]
    for _ in range(repeats):
        for side, call in enumerate((ours, peer)):
            seconds, values[side] = cpu_seconds(call)
            times[side].append(seconds)
    mine, theirs = median(times[0]), median(times[1])
    result = {
        "name": name,
        "metastable_s": mine,
        "pot_s": theirs,
        "ratio": theirs / mine,
        "metastable_value": values[0],
        "pot_value": values[1] if same else None,
        "difference": abs(values[0] - values[1]) if same else None,
    }
    shown = f"{result['difference']:.1e}" if same else "other problem"
    print(f"{name:<62} {1e3 * mine:>9.2f} {1e3 * theirs:>10.1f} {theirs / mine:>9.1f}x  {shown}", flush=True)
    return result


def emd(x: np.ndarray, y: np.ndarray, b: np.ndarray | None = None) -> Callable[[], float]:
    cost = ground_cost(x, y)
    a = np.full(len(x), 1 / len(x))
    b = np.full(len(y), 1 / len(y)) if b is None else b
    return lambda: float(np.sqrt(ot.emd2(a, b, cost, numItermax=10**9)))


def pot_circle(x: np.ndarray, y: np.ndarray) -> Callable[[], float]:
    turns = [np.mod(np.arctan2(z[:, 1], z[:, 0]) / (2 * np.pi), 1) for z in (x, y)]
    return lambda: 2 * np.pi * float(np.sqrt(ot.wasserstein_circle(*turns, p=2).item()))


def cases(quick: bool) -> list[dict[str, object]]:
    repeats = 3 if quick else 5
    found = []
    poles = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 0.0]])
    small = [sphere.uniform(2000, 3, seed=s).numpy() for s in (1, 2)]
    million = Measure(sphere.uniform(1_000_000, 3, seed=1))
    found.append(
        row(
            "two atoms, n = 1e6, against POT exact at n = 2e3",
            lambda: wasserstein(million, poles),
            emd(*small),
            repeats=repeats,
            same=False,
        )
    )
    cloud = Measure(sphere.uniform(100_000, 3, seed=1))
    points = cloud.points.numpy()
    found.append(row("two atoms, n = 1e5", lambda: wasserstein(cloud, poles), emd(points, poles), repeats=repeats))
    spiral = Measure(sphere.fibonacci(20_000 if quick else 100_000))
    found.append(
        row(
            f"two atoms, n = {spiral.n:.0e}, tokens in spiral order",
            lambda: wasserstein(spiral, poles),
            emd(spiral.points.numpy(), poles),
            repeats=repeats,
        )
    )
    eight = sphere.uniform(8, 3, seed=2).numpy()
    n = 20_000 if quick else 100_000
    part = Measure(points[:n])
    found.append(
        row(f"eight atoms, n = {n:.0e}", lambda: wasserstein(part, eight), emd(points[:n], eight), repeats=1)
    )
    n = 100_000 if quick else 1_000_000
    a, b = (Measure(sphere.uniform(n, 2, seed=s)) for s in (1, 2))
    found.append(
        row(
            f"circle, geodesic, n = {n:.0e}",
            lambda: wasserstein(a, b, metric="geodesic"),
            pot_circle(a.points.numpy(), b.points.numpy()),
            repeats=repeats if quick else 3,
        )
    )
    found.append(
        row(
            f"circle, chordal with certificate, n = {n:.0e}, against POT at 2e3",
            lambda: wasserstein(a, b),
            emd(*small),
            repeats=repeats,
            same=False,
        )
    )
    n = 1000
    ring, cluster = sphere.equispaced(n).numpy(), sphere.von_mises_fisher(n, [1.0, 0.0], 20.0, seed=1).numpy()
    found.append(
        row(
            "network simplex, n = 1e3, ordered tokens (shuffled by us)",
            lambda: wasserstein(ring, cluster, method="exact"),
            emd(ring, cluster),
            repeats=repeats,
        )
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under a minute")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the JSON")
    options = parser.parse_args()
    print(f"{'case (chordal W2 unless said)':<62} {'ours/ms':>9} {'POT/ms':>10} {'ratio':>10}  difference")
    rows = cases(options.quick)
    record = {
        "benchmark": "transport",
        "quick": options.quick,
        "metastable": metastable.__version__,
        "pot": ot.__version__,
        "numpy": np.__version__,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "rows": rows,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / ("transport-quick.json" if options.quick else "transport.json")
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
