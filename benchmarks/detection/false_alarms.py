"""Realised rates of false alarms over many splits of documents that no channel was fitted to, by tercile of length.

One calibration has one threshold, and its realised rate is a random number with the spread of m recalibration
texts; only the mean over splits says whether the nominal rate is what it says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from metastable.monitor.conformal import Conformal
from metastable.monitor.lengths import LengthTrend
from metastable.monitor.split import PARTS
from metastable.monitor.weighing import weighted_sum

SPLITS = 40
WINDOWS = {0.01: (0.002, 0.025), 0.05: (0.02, 0.08)}
"""Nominal rates, and what a realised one is asked to lie in."""


def over_splits(values: np.ndarray, lengths: np.ndarray, names: tuple[str, ...], texts: int) -> dict[str, Any]:
    """values (n, c): scores of the channels, n documents. texts: size of the calibration that is imitated."""
    ranks, last = (round(PARTS[part] * texts) for part in ("ranks", "recalibration"))
    found: dict[float, list[list[float]]] = {rate: [] for rate in WINDOWS}
    for seed in range(SPLITS):
        rng = np.random.default_rng(seed)
        first, second, new = np.split(rng.permutation(len(values)), [ranks, ranks + last])
        trend = LengthTrend.fit(values[first], lengths[first])
        away = trend(values, lengths)
        laws = [Conformal.of(column) for column in away[first].T]
        sums = weighted_sum(np.stack([law.surprise(away[:, c]) for c, law in enumerate(laws)], axis=1), names)
        p = Conformal.of(sums[second]).p(sums[new], rng)
        thirds = np.array_split(np.argsort(lengths[new], kind="stable"), 3)
        for rate, rows in found.items():
            rows.append([float((p[part] <= rate).mean()) for part in (np.arange(len(new)), *thirds)])
    result: dict[str, Any] = {"documents": len(values), "ranks": ranks, "recalibration": last, "splits": SPLITS}
    for rate, rows in found.items():
        table, (low, high) = np.array(rows), WINDOWS[rate]
        inside = (table >= low) & (table <= high)
        result[f"{rate:.0%}"] = {
            "order": ["all", "short", "middle", "long"],
            "mean": table.mean(axis=0).tolist(),
            "spread over splits": table.std(axis=0).tolist(),
            "share of splits in the window": inside.mean(axis=0).tolist(),
        }
    return result
